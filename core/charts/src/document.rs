//! A standalone SVG document.

/// Colours of the classes: readable on white and on black, the first six distinguishable by the colour-blind.
pub const COLOURS: [&str; 10] = [
    "#8a8f98", "#e69f00", "#cc79a7", "#0090d0", "#009e73", "#d55e00", "#7d57c1", "#7a4f2a", "#0b8d8d",
    "#c2255c",
];

/// The class of the line or mark number `at`; numbers beyond the last colour start again at the first.
pub fn class(at: usize) -> String {
    format!("c{}", at % COLOURS.len())
}

/// An SVG file of this size around `content`, for light and dark screens.
pub fn document(width: f64, height: f64, content: &str) -> String {
    let colours: String =
        COLOURS.iter().enumerate().map(|(at, colour)| format!(".c{at}{{color:{colour}}}")).collect();
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<style>svg{{background:#fff;color:#222}}@media(prefers-color-scheme:dark){{svg{{\
         background:#16181d;color:#ddd}}}}text{{fill:currentColor}}.grid,.axis{{stroke:currentColor;\
         stroke-opacity:.25}}.curve{{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round}}\
         .dot{{fill:currentColor}}{colours}</style>\n{content}\n</svg>\n"
    )
}

/// Escapes text for SVG and HTML.
pub fn text(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn document_defines_every_class_and_loads_nothing() {
        let picture = document(100.0, 50.0, "<circle class=\"dot c9\"/>");
        assert!(picture.starts_with("<svg xmlns") && picture.ends_with("</svg>\n"));
        assert!((0..COLOURS.len()).all(|at| picture.contains(&format!(".{}{{color:", class(at)))));
        assert_eq!(class(COLOURS.len()), class(0));
    }

    #[test]
    fn text_escapes_markup() {
        assert_eq!(text("<a & \"b\">"), "&lt;a &amp; &quot;b&quot;&gt;");
    }
}
