//! An order of queries in which neighbours are similar, for codes that interpolate between them.

/// Returns a short path through the queries: from the first, always to the nearest that is left. Slot i gets the
/// query `order[i]`. Computes k^2 / 2 distances; all queries must have the same length.
pub fn nearest(queries: &[&[f32]]) -> Vec<usize> {
    let mut rest: Vec<usize> = (1..queries.len()).collect();
    let mut order: Vec<usize> = (0..queries.len().min(1)).collect();
    while let Some(&last) = order.last() {
        let distance = |index: usize| squared_distance(queries[last], queries[index]);
        let Some(position) = (0..rest.len()).min_by(|a, b| distance(rest[*a]).total_cmp(&distance(rest[*b])))
        else {
            break;
        };
        order.push(rest.swap_remove(position));
    }
    order
}

fn squared_distance(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn points_on_a_line_are_visited_in_order() {
        let points = [[0.0_f32, 0.0], [3.0, 3.0], [1.0, 1.0], [4.0, 4.0], [2.0, 2.0]];
        let queries: Vec<&[f32]> = points.iter().map(<[f32; 2]>::as_slice).collect();
        assert_eq!(nearest(&queries), [0, 2, 4, 1, 3]);
        assert_eq!(nearest(&[]), Vec::<usize>::new());
    }
}
