//! Windows as columns of a matrix: row (channel, tap), column place.
//!
//! A convolution is then a product with the filters, and its derivative by the image adds a product's columns back to
//! their places. In most networks there are as many places as image elements. Then a tap sees the image shifted by a
//! constant: one copy, and zeros at the border.

use std::ops::Range;

/// A window that slides over images of two axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sliding {
    pub(crate) kernel: [usize; 2],
    pub(crate) strides: [usize; 2],
    pub(crate) dilations: [usize; 2],
    /// Padding rows above and columns to the left.
    pub(crate) before: [usize; 2],
    /// The image.
    pub(crate) input: [usize; 2],
    /// Number of places of the window.
    pub(crate) output: [usize; 2],
}

impl Sliding {
    /// The places whose tap `at` along `axis` lies inside the image, and where the first of them reads.
    pub(super) fn inside(&self, axis: usize, at: usize) -> (Range<usize>, usize) {
        let (stride, size) = (self.strides[axis], self.input[axis]);
        let (offset, before) = (at * self.dilations[axis], self.before[axis]);
        let first = before.saturating_sub(offset).div_ceil(stride).min(self.output[axis]);
        let end = (size + before).saturating_sub(offset).div_ceil(stride).min(self.output[axis]);
        (first..end.max(first), (first * stride + offset).saturating_sub(before))
    }

    pub(super) fn image(&self) -> usize {
        self.input.iter().product()
    }

    pub(super) fn places(&self) -> usize {
        self.output.iter().product()
    }

    pub(super) fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// A square window on a square image, with equal padding before and behind.
    #[cfg(test)]
    pub(super) fn square(side: usize, [kernel, stride, dilation, before]: [usize; 4]) -> Self {
        let output = (side + 2 * before - ((kernel - 1) * dilation + 1)) / stride + 1;
        Self {
            kernel: [kernel; 2],
            strides: [stride; 2],
            dilations: [dilation; 2],
            before: [before; 2],
            input: [side; 2],
            output: [output; 2],
        }
    }
}

/// Gathers the windows of `image`, which may have several channels.
pub(super) fn gather(image: &[f32], sliding: &Sliding, columns: &mut [f32]) {
    let taps = sliding.taps() * sliding.places();
    for (channel, columns) in image.chunks_exact(sliding.image()).zip(columns.chunks_exact_mut(taps)) {
        for (tap, row) in columns.chunks_exact_mut(sliding.places()).enumerate() {
            match Shift::of(sliding, tap) {
                Some(shift) => shift.gather(channel, row),
                None => gather_tap(channel, sliding, tap, row),
            }
        }
    }
}

fn gather_tap(channel: &[f32], sliding: &Sliding, tap: usize, row: &mut [f32]) {
    let (ys, from_y) = sliding.inside(0, tap / sliding.kernel[1]);
    let (xs, from_x) = sliding.inside(1, tap % sliding.kernel[1]);
    let (width, stride) = (sliding.output[1], sliding.strides[1]);
    row[..ys.start * width].fill(0.0);
    row[ys.end * width..].fill(0.0);
    for (number, y) in ys.enumerate() {
        let line = &mut row[y * width..][..width];
        line[..xs.start].fill(0.0);
        line[xs.end..].fill(0.0);
        let line = &mut line[xs.clone()];
        let from = &channel[(from_y + number * sliding.strides[0]) * sliding.input[1]..][..sliding.input[1]];
        match stride {
            _ if line.is_empty() => {}
            1 => line.copy_from_slice(&from[from_x..][..line.len()]),
            _ => {
                line.iter_mut().zip(from[from_x..].iter().step_by(stride)).for_each(|(to, &from)| *to = from)
            }
        }
    }
}

/// Adds columns to the places of `image` that [`gather`] reads; overwrites the columns.
pub(super) fn scatter(columns: &mut [f32], sliding: &Sliding, image: &mut [f32]) {
    let taps = sliding.taps() * sliding.places();
    for (channel, columns) in image.chunks_exact_mut(sliding.image()).zip(columns.chunks_exact_mut(taps)) {
        for (tap, row) in columns.chunks_exact_mut(sliding.places()).enumerate() {
            match Shift::of(sliding, tap) {
                Some(shift) => shift.scatter(row, channel),
                None => scatter_tap(row, sliding, tap, channel),
            }
        }
    }
}

fn scatter_tap(row: &[f32], sliding: &Sliding, tap: usize, channel: &mut [f32]) {
    let (ys, to_y) = sliding.inside(0, tap / sliding.kernel[1]);
    let (xs, to_x) = sliding.inside(1, tap % sliding.kernel[1]);
    let (width, stride) = (sliding.output[1], sliding.strides[1]);
    for (number, y) in ys.enumerate() {
        let line = &row[y * width..][xs.clone()];
        let to = &mut channel[(to_y + number * sliding.strides[0]) * sliding.input[1]..][..sliding.input[1]];
        match stride {
            _ if line.is_empty() => {}
            1 => add(line, &mut to[to_x..]),
            _ => to[to_x..].iter_mut().step_by(stride).zip(line).for_each(|(to, from)| *to += from),
        }
    }
}

/// A tap's view of an image with as many places as elements.
struct Shift {
    /// Places whose tap lies inside the image, and the element that they read, except for the border of each line.
    places: Range<usize>,
    elements: Range<usize>,
    /// The part of a line without the border.
    columns: Range<usize>,
    width: usize,
}

impl Shift {
    fn of(sliding: &Sliding, tap: usize) -> Option<Self> {
        if sliding.strides != [1; 2] || sliding.input != sliding.output {
            return None;
        }
        let (lines, from_line) = sliding.inside(0, tap / sliding.kernel[1]);
        let (columns, from_column) = sliding.inside(1, tap % sliding.kernel[1]);
        let (width, size) = (sliding.input[1], sliding.image());
        if lines.is_empty() || columns.is_empty() {
            return None;
        }
        let (place, element) = (lines.start * width + columns.start, from_line * width + from_column);
        let count = (lines.end * width - place).min(size - element);
        Some(Self { places: place..place + count, elements: element..element + count, columns, width })
    }

    fn gather(&self, channel: &[f32], row: &mut [f32]) {
        row[..self.places.start].fill(0.0);
        row[self.places.end..].fill(0.0);
        row[self.places.clone()].copy_from_slice(&channel[self.elements.clone()]);
        self.clear_border(row);
    }

    fn scatter(&self, row: &mut [f32], channel: &mut [f32]) {
        self.clear_border(row);
        add(&row[self.places.clone()], &mut channel[self.elements.clone()]);
    }

    fn clear_border(&self, row: &mut [f32]) {
        if self.columns.start > 0 {
            row.chunks_exact_mut(self.width).for_each(|line| line[..self.columns.start].fill(0.0));
        }
        if self.columns.end < self.width {
            row.chunks_exact_mut(self.width).for_each(|line| line[self.columns.end..].fill(0.0));
        }
    }
}

fn add(values: &[f32], to: &mut [f32]) {
    to.iter_mut().zip(values).for_each(|(to, value)| *to += value);
}
