//! Pascal VOC: photos, an XML annotation of each with boxes, and lists of names per split.
//!
//! A network with fixed outputs regresses one box, so only images with exactly one object of the wanted name are
//! used. A box is `x_min, y_min, x_max, y_max` in fractions of the image.

use std::path::{Path, PathBuf};

use roxmltree::{Document, Node};

use super::file::{self, Limit};
use super::folder::Rows;
use super::image::{self, Form};
use super::options::Options;
use super::{Samples, Unusable};
use crate::Array;

/// Maximum size of an annotation, in bytes.
const ANNOTATION: Limit = Limit(16 << 20);

/// The images to use, and the object in them.
pub(super) struct Choice {
    split: String,
    object: Option<String>,
    form: Form,
}

impl Choice {
    pub(super) fn read(options: &Options) -> Result<Self, Unusable> {
        let form = Form::read(options)?;
        Ok(Self {
            split: options.text("split").unwrap_or_else(|| "train".into()),
            object: options.text("object"),
            form: Form { size: form.size.or(Some((64, 64))), ..form },
        })
    }
}

pub(super) fn read(folder: &Path, choice: &Choice, limit: Limit) -> Result<Samples, Unusable> {
    let list = folder.join("ImageSets/Main").join(format!("{}.txt", choice.split));
    let names = text(&list)?;
    let (mut rows, mut boxes) = (Rows::new(limit), Vec::new());
    for name in names.lines().filter_map(|line| line.split_whitespace().next()) {
        let annotation = folder.join("Annotations").join(format!("{name}.xml"));
        let Some(corners) = only_box(&annotation, choice.object.as_deref())? else { continue };
        let path = photo(folder, name)?;
        let image = image::read(&path, choice.form, limit)?;
        let (height, width) = image.original;
        let fractions = [width, height, width, height].map(|size| size as f32);
        boxes.extend(corners.iter().zip(fractions).map(|(corner, size)| corner / size));
        rows.add(&path, &image.dims, &image.values)?;
    }
    if boxes.is_empty() {
        let object = choice.object.as_deref().unwrap_or("object");
        return Err(Unusable::Nothing { path: list, wanted: format!("no image with exactly one {object}") });
    }
    let boxes = Array::new(vec![boxes.len() / 4, 4], boxes).expect("four corners each");
    Samples::with_values(rows.array(), boxes)
}

/// The corners of the only object of this name, in pixels; `None` if there are none or several.
fn only_box(path: &Path, object: Option<&str>) -> Result<Option<[f32; 4]>, Unusable> {
    let content = text(path)?;
    let document = Document::parse(&content).map_err(|error| {
        let (line, detail) = (u64::from(error.pos().row), error.to_string());
        Unusable::Line { path: path.into(), line, detail }
    })?;
    let named = |node: &Node<'_, '_>| {
        object.is_none_or(|object| inner(*node, "name").is_some_and(|name| name == object))
    };
    let mut objects = document.descendants().filter(|node| node.has_tag_name("object")).filter(named);
    let (Some(found), None) = (objects.next(), objects.next()) else { return Ok(None) };
    let at = |node: Node<'_, '_>, detail: String| {
        let line = u64::from(document.text_pos_at(node.range().start).row);
        Unusable::Line { path: path.into(), line, detail }
    };
    let corners = found.children().find(|node| node.has_tag_name("bndbox"));
    let corners = corners.ok_or_else(|| at(found, "the object has no bndbox".into()))?;
    let corner = |name: &str| {
        let value = inner(corners, name).and_then(|text| text.trim().parse::<f32>().ok());
        value
            .filter(|value| value.is_finite())
            .ok_or_else(|| at(corners, format!("its {name} is not a number")))
    };
    let found = [corner("xmin")?, corner("ymin")?, corner("xmax")?, corner("ymax")?];
    if found[0] >= found[2] || found[1] >= found[3] {
        return Err(at(corners, format!("the box {found:?} has no area")));
    }
    Ok(Some(found))
}

fn inner<'a>(node: Node<'a, '_>, name: &str) -> Option<&'a str> {
    node.children().find(|child| child.has_tag_name(name))?.text()
}

fn photo(folder: &Path, name: &str) -> Result<PathBuf, Unusable> {
    let stem = folder.join("JPEGImages").join(name);
    let candidates =
        ["jpg", "jpeg", "png"].map(|ending| PathBuf::from(format!("{}.{ending}", stem.display())));
    let missing =
        || Unusable::Nothing { path: folder.join("JPEGImages"), wanted: format!("no image '{name}'") };
    candidates.into_iter().find(|path| path.is_file()).ok_or_else(missing)
}

fn text(path: &Path) -> Result<String, Unusable> {
    let detail = "it is not UTF-8 text".to_owned();
    String::from_utf8(file::read(path, ANNOTATION)?).map_err(|_| Unusable::Format {
        path: path.into(),
        expected: "a text file",
        detail,
    })
}
