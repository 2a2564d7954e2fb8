//! ParM's image code: shrink the k images and tile them into one image of the original size.
//!
//! The grid is the squarest one with k cells, wider than high. Cell (i, j) of R x C covers output rows i H / R to
//! (i + 1) H / R and columns j W / C to (j + 1) W / C, rounded down, so that any grid fits any image. An output pixel is
//! the average of its input area, with fractional weights at the edges, channel by channel. A parity query costs as much
//! as a query and keeps the images apart, but loses detail. Cells without a member are zeros.
//!
//! The average is separable: whole input rows are added up first, which vectorises, then columns.

use crate::code::take;
use crate::slots::Decoder;
use crate::{Code, CodeSpec, Error, Input, Members, Received, Workspace};

/// Shrunk images on a grid.
#[derive(Debug)]
pub(crate) struct Tiles {
    spec: CodeSpec,
    rows: usize,
    columns: usize,
    decoder: Decoder,
}

/// The sizes of an image: `planes` images of `height` rows of `width` pixels.
#[derive(Clone, Copy, Debug)]
struct Image {
    planes: usize,
    height: usize,
    width: usize,
}

/// The position of a tile in the output.
#[derive(Clone, Copy, Debug)]
struct Cell {
    top: usize,
    bottom: usize,
    left: usize,
    right: usize,
}

impl Tiles {
    /// `spec.k` images on as many columns as the root of k, rounded up, and no more rows than needed: 1 x 2, 2 x 2, 2 x 3,
    /// 3 x 3 and so on.
    pub(crate) fn new(spec: &CodeSpec) -> Result<Self, Error> {
        let decoder = Decoder::new(spec)?;
        let columns = (1..=spec.k).find(|columns| columns * columns >= spec.k).unwrap_or(1);
        Ok(Self { spec: spec.clone(), rows: spec.k.div_ceil(columns), columns, decoder })
    }

    fn image(&self, input: Input<'_>) -> Result<Image, Error> {
        let (planes, height, width) = match *input.dims {
            [height, width] => (1, height, width),
            [planes, height, width] => (planes, height, width),
            _ => (0, 0, 0),
        };
        let Self { rows, columns, .. } = *self;
        if planes == 0 || height < rows || width < columns {
            return Err(Error::NotAnImage { dims: input.dims.to_vec(), rows, columns });
        }
        Ok(Image { planes, height, width })
    }

    fn cell(&self, slot: usize, image: Image) -> Cell {
        let (row, column) = (slot / self.columns, slot % self.columns);
        Cell {
            top: row * image.height / self.rows,
            bottom: (row + 1) * image.height / self.rows,
            left: column * image.width / self.columns,
            right: (column + 1) * image.width / self.columns,
        }
    }
}

impl Code for Tiles {
    fn spec(&self) -> &CodeSpec {
        &self.spec
    }

    fn parity_dims(&self, input: Input<'_>) -> Result<Vec<usize>, Error> {
        self.floats_only(input)?;
        self.image(input)?;
        Ok(input.dims.to_vec())
    }

    fn encode_checked(
        &self,
        members: Members<'_, f32>,
        parities: &mut [&mut [f32]],
        workspace: &mut Workspace,
    ) -> Result<(), Error> {
        let image = self.image(members.input)?;
        let Some((first, others)) = parities.split_first_mut() else { return Ok(()) };
        if members.present().len() < self.rows * self.columns {
            first.fill(0.0);
        }
        for (slot, query) in members.queries.iter().enumerate() {
            if let Some(query) = query {
                shrink(query, image, self.cell(slot, image), first, workspace);
            }
        }
        others.iter_mut().for_each(|parity| parity.copy_from_slice(first));
        Ok(())
    }

    fn decode_checked(
        &self,
        received: Received<'_>,
        slot: usize,
        prediction: &mut [f32],
        _: &mut Workspace,
    ) -> Result<(), Error> {
        self.decoder.decode(received, slot, prediction);
        Ok(())
    }
}

/// Averages a query down to its cell: rows first, then pixels of each line.
fn shrink(query: &[f32], image: Image, cell: Cell, parity: &mut [f32], workspace: &mut Workspace) {
    let width = cell.right - cell.left;
    workspace.averages.clear();
    workspace.averages.extend((0..width).map(|x| Average::of(x, width, image.width)));
    let line = take(&mut workspace.floats, image.width);
    for plane in 0..image.planes {
        for y in cell.top..cell.bottom {
            line.fill(0.0);
            let average = Average::of(y - cell.top, cell.bottom - cell.top, image.height);
            for at in average.from..=average.to {
                let weight = average.weight(at);
                let row = &query[(plane * image.height + at) * image.width..][..image.width];
                line.iter_mut().zip(row).for_each(|(sum, value)| *sum += weight * value);
            }
            let out = &mut parity[(plane * image.height + y) * image.width..][cell.left..cell.right];
            narrow(line, &workspace.averages, out);
        }
    }
}

/// Averages a line of pixels down to one pixel for each of `averages`.
fn narrow(line: &[f32], averages: &[Average], out: &mut [f32]) {
    if line.len() == 2 * averages.len() {
        let (pairs, _) = line.as_chunks::<2>();
        return out.iter_mut().zip(pairs).for_each(|(out, [a, b])| *out = (a + b) * 0.5);
    }
    for (value, average) in out.iter_mut().zip(averages) {
        let Average { from, to, first, inner, last } = *average;
        let between: f32 = (from + 1..to).map(|at| line[at]).sum();
        *value = first * line[from] + inner * between;
        if to > from {
            *value += last * line[to];
        }
    }
}

/// Pixels `from..=to` and their weights: of the first pixel, of the last, and of each one in the middle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Average {
    from: usize,
    to: usize,
    first: f32,
    inner: f32,
    last: f32,
}

impl Average {
    /// That of the output pixel `index` of `small`, made from `large` input pixels.
    fn of(index: usize, small: usize, large: usize) -> Self {
        // In units of 1 / `small` of an input pixel.
        let (start, end) = (index * large, (index + 1) * large);
        let (from, to) = (start / small, end.div_ceil(small) - 1);
        let share = |pixel: usize| {
            let overlap = end.min((pixel + 1) * small) - start.max(pixel * small);
            overlap as f32 / large as f32
        };
        Self { from, to, first: share(from), inner: small as f32 / large as f32, last: share(to) }
    }

    fn weight(self, pixel: usize) -> f32 {
        match pixel {
            _ if pixel == self.from => self.first,
            _ if pixel == self.to => self.last,
            _ => self.inner,
        }
    }
}
