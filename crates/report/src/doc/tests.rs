use super::*;
use crate::Unit;
use crate::chart::{
    Axis, Bar, BarGroup, Bars, Better, Effect, EffectGroup, Effects, Plot, Point, Reference, Series, Shape,
};

/// A document with every kind of block and picture, in which every text is made of a name.
fn every(name: &str) -> Doc {
    let effect = |value| Effect { name: name.into(), value, low: Some(value - 0.2), high: Some(value + 0.1), n: 5 };
    let effects = Effects {
        title: name.into(),
        note: name.into(),
        confidence: 0.95,
        groups: vec![EffectGroup {
            name: name.into(),
            unit: Unit::Points,
            better: Better::Higher,
            effects: vec![effect(0.6), effect(0.1), effect(-0.3)],
        }],
    };
    let plot = Plot {
        title: name.into(),
        x: Axis::new(name, Unit::PerSecond),
        y: Axis::new(name, Unit::Share).from_zero().reaching(1.0),
        series: vec![
            Series::new(
                name,
                Shape::Joined,
                vec![
                    Point::new(8.0, 0.97).between(0.95, 0.99).n(200).ring(name),
                    Point::new(16.0, 0.4).between(0.3, 0.5).n(200).named(name),
                ],
            ),
            Series::new(name, Shape::Line, vec![Point::new(8.0, 0.9), Point::new(16.0, 0.5)]),
            Series::new(name, Shape::Marks, vec![Point::new(12.0, 0.7)]).tone(Tone::Bad),
        ],
        references: vec![
            Reference::Across(0.95, name.into()),
            Reference::Upright(12.0, name.into()),
            Reference::Span(9.0, 11.0, name.into()),
            Reference::Equal(name.into()),
        ],
        note: name.into(),
    };
    let bar = Some(Bar { value: 0.64, ends: Some([0.6, 0.7]), n: 200 });
    let bars = Bars {
        title: name.into(),
        label: name.into(),
        unit: Unit::Share,
        series: vec![name.into(), name.into()],
        groups: vec![BarGroup { name: name.into(), bars: vec![bar, None] }],
        reference: Some((0.95, name.into())),
        note: name.into(),
    };
    let table = || {
        let cell = Cell::from(name).n(200).tone(Tone::Good);
        Table::new(name, name).number(name).words(name).row(name, [cell, Cell::from(name)])
    };
    let card = Card {
        name: name.into(),
        figure: name.into(),
        meaning: name.into(),
        more: vec![(name.into(), name.into(), name.into())],
    };
    Doc::new(name, name, name)
        .verdict(name, Tone::Warn)
        .answer(name)
        .subject(name)
        .badge(name)
        .warning(name)
        .point(Tone::Bad, name)
        .section(Section::new(name).pictures([effects.draw(), plot.draw(), bars.draw()]))
        .section(
            Section::new(name)
                .block(Block::Heading(Tone::Good, name.into()))
                .block(Block::Cards(vec![card]))
                .paragraph(name)
                .list([name, name])
                .table(table())
                .tables([table(), table()])
                .terms([(name, name)])
                .verbatim(name)
                .details(name, [Block::Paragraph(name.into()), Block::List(vec![(Tone::Warn, name.into())])]),
        )
}

#[test]
fn a_document_is_rendered_as_a_page_and_as_its_twin_with_the_same_words() {
    let doc = every("alpha");
    let (page, twin) = (doc.to_html(), doc.to_markdown());
    let in_tables = "64.0%";
    assert!(page.contains(in_tables) && twin.contains(in_tables));
    assert_eq!(page.matches("<figure>").count(), 3);
    assert_eq!(twin.matches("**Picture: alpha**").count(), 3);
    assert!(twin.contains("| alpha | alpha (n=200) | alpha |"), "{twin}");
    assert!(page.contains("<details><summary>alpha</summary>"));
    assert!(twin.starts_with("# alpha\n\nElasticServe alpha\n"));
}

#[test]
fn what_has_nothing_to_show_is_left_out() {
    let doc = Doc::new("report", "t", "a").section(Section::new("empty").table(Table::new("T", "c")).list([""; 0]));
    assert!(!doc.to_html().contains("<h2>") && !doc.to_markdown().contains("##"));
}

/// Names that try to leave their place in a page, in Markdown or on a terminal.
pub(crate) fn hostile() -> Vec<String> {
    let cores = [
        "<script>alert(1)</script>",
        "</title><script>alert(1)</script>",
        "</style><img src=x onerror=alert(1)>",
        "\"'><svg onload=alert(1)>",
        "<a href=http://evil.example>x</a>",
        "--><iframe src=//evil.example></iframe>",
        "&lt;script&gt;&#60;b&#62;",
        "[x](http://evil.example)",
        "![x](http://evil.example/a.png)",
        "<http://evil.example>",
        "https://evil.example www.evil.example",
        "`code` ``two`` ```fence```",
        "| a | b |\n| --- | --- |",
        "# heading\n\n> quote\n- list",
        "**bold** _em_ ~~gone~~ <b>",
        "\u{1b}[2J\u{7}\r\n<script>",
        "\u{202e}evil\u{2066}<\u{200b}script>",
        "javascript:alert(1)//<",
    ];
    let plain = cores.iter().map(|c| (*c).to_owned());
    let within = cores.iter().map(|c| format!("a {c} b"));
    let twice = cores.iter().map(|c| format!("{c}{c}"));
    let all: Vec<String> = plain.chain(within).chain(twice).collect();
    assert!(all.len() >= 50);
    all
}

/// What stands between the tags of a page must be text, and no element may be there that the page does not make itself.
pub(crate) fn assert_inert(page: &str, twin: &str, name: &str) {
    for forbidden in ["<script", "<img", "<iframe", "<a ", "<svg onload", "<b>alert", "<http", "javascript:alert(1)//<"]
    {
        assert!(!page.contains(forbidden), "{name}: {forbidden}");
    }
    for place in page.match_indices("http").chain(page.match_indices("//")).map(|m| m.0) {
        // Addresses may stand in a text, never in an attribute: the last thing opened before one is no tag.
        let before = &page[..place];
        assert!(before.rfind('>') > before.rfind('<') || before.ends_with("<meta "), "{name}: an address in a tag");
    }
    let code = |line: &&str| !line.starts_with("    ");
    for line in twin.lines().filter(code) {
        assert!(!line.contains('<'), "{name}: {line}");
        assert!(!line.replace("\\`", "").contains('`'), "{name}: {line}");
        assert!(!line.contains("http:") && !line.contains("https:") && !line.contains("www."), "{name}: {line}");
        let links = line.replace("\\[", "").replace("\\]", "");
        assert!(!links.contains('[') && !links.contains("]("), "{name}: {line}");
        if line.starts_with('|') {
            assert_eq!(line.replace("\\|", "").matches('|').count(), columns(twin, line), "{name}: {line}");
        }
    }
    assert!(!page.chars().chain(twin.chars()).any(|c| (c.is_control() && c != '\n') || c == '\u{202e}'), "{name}");
}

/// The bars in the head of the table that a line belongs to.
fn columns(twin: &str, line: &str) -> usize {
    let at = line.as_ptr() as usize - twin.as_ptr() as usize;
    let table = twin[..at].rfind("\n\n").map_or(0, |i| i + 2);
    twin[table..].lines().next().unwrap_or_default().replace("\\|", "").matches('|').count()
}

#[test]
fn no_name_leaves_its_place_in_a_page_or_in_its_twin() {
    for name in hostile() {
        let doc = every(&name);
        assert_inert(&doc.to_html(), &doc.to_markdown(), &name);
    }
}

/// The numbers in a text, without signs and units.
pub(crate) fn numbers(text: &str) -> std::collections::BTreeSet<String> {
    let parts = text.split(|c: char| !(c.is_ascii_digit() || c == '.' || c == ','));
    parts
        .map(|p| p.trim_matches(['.', ',']).to_owned())
        .filter(|p| p.starts_with(|c: char| c.is_ascii_digit()))
        .collect()
}

/// Every number in a picture's text is in the table of its numbers.
pub(crate) fn assert_told_as_listed(doc: &Doc) -> usize {
    let mut pictures = 0;
    for picture in doc.sections.iter().flat_map(|s| &s.blocks) {
        let Block::Picture(picture) = picture else { continue };
        let table = &picture.numbers;
        let heads = table.columns.iter().map(|c| c.head.as_str()).chain([table.corner.as_str()]);
        let cells = table.rows.iter().flat_map(|r| r.cells.iter().map(|c| c.text.as_str()).chain([r.name.as_str()]));
        let listed = numbers(&heads.chain(cells).collect::<Vec<_>>().join(" "));
        for number in numbers(&picture.alt) {
            assert!(listed.contains(&number), "{}: {number} of '{}' is not in {listed:?}", picture.title, picture.alt);
        }
        assert!(!listed.is_empty(), "{} lists no numbers", picture.title);
        pictures += 1;
    }
    pictures
}

#[test]
fn the_words_of_every_picture_hold_no_number_that_its_table_does_not() {
    assert_eq!(assert_told_as_listed(&every("alpha")), 3);
}
