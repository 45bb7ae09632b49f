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
