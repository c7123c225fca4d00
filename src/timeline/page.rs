//! The timeline as one HTML file that needs nothing else.

use super::{Extent, Timeline};

const TEMPLATE: &str = include_str!("page.html");

/// The page.
pub fn page(timeline: &Timeline) -> String {
    // The data stands inside a script element; `<` must not end it.
    let data = serde_json::to_string(timeline).unwrap_or_default().replace('<', "\\u003c");
    let title = timeline.title.replace('&', "&amp;").replace('<', "&lt;");
    let extent = serde_json::to_string(&Extent::of(timeline)).unwrap_or_default();
    TEMPLATE.replace("{{extent}}", &extent).replace("{{title}}", &title).replace("{{data}}", &data)
}

#[cfg(test)]
mod tests {
    use crate::timeline::sample;

    #[test]
    fn the_page_stands_alone_and_the_data_cannot_break_out() {
        let page = super::page(&sample::timeline());
        assert!(!page.contains("http://") && !page.contains("https://") && !page.contains("src="));
        assert!(!page.contains("{{"));
        assert!(!page.contains("& <b>"));
        assert!(
            page.contains("const { duration, whole, busy } = {\"duration\":")
                && page.contains("let range = busy.slice();")
        );
        assert!(page.contains(r#""kind":"lost","from":785.0,"to":815.0,"label":"7 events lost""#));
        if let Ok(to) = std::env::var("FENCEPOST_SAMPLE_PAGE") {
            std::fs::write(to, page).unwrap();
        }
    }
}
