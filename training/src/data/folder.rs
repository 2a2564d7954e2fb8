//! Folders of images, one folder per class.

use std::fs;
use std::path::{Path, PathBuf};

use super::file::Limit;
use super::image::{self, Form};
use super::{Samples, Unusable};
use crate::Array;

/// Maximum number of files of a data set.
pub(super) const MOST_FILES: usize = 4_000_000;

/// Extensions of images.
const ENDINGS: [&str; 3] = ["png", "jpg", "jpeg"];

/// Reads a folder of images.
pub(super) fn images(folder: &Path, form: Form, limit: Limit) -> Result<Samples, Unusable> {
    let files = classes(folder)?;
    let mut rows = Rows::new(limit);
    for (path, class) in files {
        let image = image::read(&path, form, limit)?;
        rows.add(&path, &image.dims, &image.values)?;
        rows.labels.push(class);
    }
    rows.finish()
}

/// The images below a folder with their classes, which are its subfolders in order of names. A class without images is
/// an error, since it was meant to have some.
fn classes(folder: &Path) -> Result<Vec<(PathBuf, usize)>, Unusable> {
    let folders: Vec<PathBuf> = sorted(folder)?.into_iter().filter(|path| path.is_dir()).collect();
    if folders.is_empty() {
        return Err(Unusable::Nothing { path: folder.into(), wanted: "no folder of a class".into() });
    }
    let mut files = Vec::new();
    for (class, folder) in folders.iter().enumerate() {
        let before = files.len();
        files.extend(pictures(folder)?.into_iter().map(|path| (path, class)));
        if files.len() == before {
            let wanted = format!("no file that ends in {}", ENDINGS.join(" or "));
            return Err(Unusable::Nothing { path: folder.clone(), wanted });
        }
        if files.len() > MOST_FILES {
            return Err(Unusable::TooManyFiles { path: folder.clone(), limit: MOST_FILES });
        }
    }
    Ok(files)
}

/// A folder's images, sorted by name.
fn pictures(folder: &Path) -> Result<Vec<PathBuf>, Unusable> {
    let ends = |path: &PathBuf| {
        let ending = path.extension().and_then(|ending| ending.to_str()).map(str::to_ascii_lowercase);
        ending.is_some_and(|ending| ENDINGS.contains(&ending.as_str()))
    };
    Ok(sorted(folder)?.into_iter().filter(ends).collect())
}

fn sorted(folder: &Path) -> Result<Vec<PathBuf>, Unusable> {
    let failed = |error: std::io::Error| Unusable::Read { path: folder.into(), message: error.to_string() };
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        paths.push(entry.map_err(failed)?.path());
        if paths.len() > MOST_FILES {
            return Err(Unusable::TooManyFiles { path: folder.into(), limit: MOST_FILES });
        }
    }
    paths.sort_unstable();
    Ok(paths)
}

/// Rows of equal shape, collected file by file within a limit.
pub(super) struct Rows {
    dims: Vec<usize>,
    data: Vec<f32>,
    count: usize,
    limit: Limit,
    labels: Vec<usize>,
}

impl Rows {
    pub(super) fn new(limit: Limit) -> Self {
        Self { dims: Vec::new(), data: Vec::new(), count: 0, limit, labels: Vec::new() }
    }

    /// Adds a file's row.
    pub(super) fn add(&mut self, path: &Path, dims: &[usize], values: &[f32]) -> Result<(), Unusable> {
        if self.count == 0 {
            self.dims = dims.to_vec();
        }
        if self.dims != dims {
            let (expected, actual) = (self.dims.clone(), dims.to_vec());
            return Err(Unusable::Shape { path: path.into(), expected, actual });
        }
        if 4 * (self.data.len() + values.len()) as u64 > self.limit.0 {
            return Err(Unusable::TooLarge { path: path.into(), limit: self.limit.0 });
        }
        self.data.extend_from_slice(values);
        self.count += 1;
        Ok(())
    }

    /// All rows.
    pub(super) fn array(self) -> Array<f32> {
        let shape = std::iter::once(self.count).chain(self.dims).collect();
        Array::new(shape, self.data).expect("rows of one shape were added")
    }

    /// All rows with their labels.
    fn finish(mut self) -> Result<Samples, Unusable> {
        let labels = std::mem::take(&mut self.labels);
        Samples::new(self.array(), Some(labels))
    }
}
