//! A temperature field as a picture: water in colours from dark blue (cold) to yellow (warm), land in grey with a dark
//! coast, a legend with degrees.
//!
//! The colours are those of the map "thermal" of cmocean (Thyng et al. 2016), which is even to the eye and readable
//! without colour vision.

use crate::field::{DEGREE, Field, LAND};
use crate::font;
use std::io::{self, Write};

type Colour = [u8; 3];

/// The colour map, from cold to warm.
const THERMAL: [Colour; 12] = [
    [4, 35, 51],
    [15, 45, 97],
    [45, 54, 146],
    [84, 65, 148],
    [116, 76, 144],
    [148, 86, 139],
    [181, 96, 127],
    [214, 107, 108],
    [238, 131, 82],
    [249, 163, 66],
    [246, 203, 69],
    [232, 250, 91],
];
const PAPER: Colour = [250, 250, 248];
const INK: Colour = [40, 44, 52];
const GROUND: Colour = [176, 172, 162];
const HILL: Colour = [196, 193, 184];
const COAST: Colour = [72, 70, 64];

/// Rows and columns of points with a colour each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Points from left to right.
    pub width: usize,
    /// Points from top to bottom.
    pub height: usize,
    points: Vec<Colour>,
}

impl Picture {
    fn new(width: usize, height: usize, colour: Colour) -> Picture {
        Picture { width, height, points: vec![colour; width * height] }
    }

    /// The colour of a point.
    pub fn at(&self, x: usize, y: usize) -> Colour {
        self.points[y * self.width + x]
    }

    fn fill(&mut self, x: usize, y: usize, width: usize, height: usize, colour: Colour) {
        for row in y.min(self.height)..(y + height).min(self.height) {
            let (from, to) = (x.min(self.width), (x + width).min(self.width));
            self.points[row * self.width + from..row * self.width + to].fill(colour);
        }
    }

    /// Mixes a colour into a point.
    fn blend(&mut self, x: usize, y: usize, colour: Colour, share: f64) {
        if x < self.width && y < self.height {
            let point = &mut self.points[y * self.width + x];
            let mix = |(old, new): (u8, u8)| (f64::from(old) + (f64::from(new) - f64::from(old)) * share).round() as u8;
            *point = std::array::from_fn(|i| mix((point[i], colour[i])));
        }
    }

    /// A text whose letters' dots are `scale` points wide. The dots run into each other, and edges are soft: letters
    /// look drawn, not set
    /// from squares.
    fn text(&mut self, x: usize, y: usize, scale: usize, colour: Colour, text: &str) {
        let (columns, rows) = (font::width(text) + 2, font::HEIGHT + 3);
        // With a frame of empty dots.
        let mut lit = vec![0.0; columns * rows];
        font::dots(text, |dx, dy| lit[(dy + 1) * columns + dx + 1] = 1.0);
        let dot = |column: usize, row: usize| lit.get(row * columns + column).copied().unwrap_or(0.0);
        for py in 0..(rows - 1) * scale {
            for px in 0..(columns - 1) * scale {
                // Between the centres of four dots.
                let (across, down) = ((px as f64 + 0.5) / scale as f64, (py as f64 + 0.5) / scale as f64);
                let (column, row) = (across as usize, down as usize);
                let (fx, fy) = (across.fract(), down.fract());
                let upper = dot(column, row) * (1.0 - fx) + dot(column + 1, row) * fx;
                let lower = dot(column, row + 1) * (1.0 - fx) + dot(column + 1, row + 1) * fx;
                let share = ((upper * (1.0 - fy) + lower * fy - 0.25) / 0.3).clamp(0.0, 1.0);
                if share > 0.0 {
                    let (left, top) = ((x + px).saturating_sub(scale / 2), (y + py).saturating_sub(scale / 2));
                    self.blend(left, top, colour, share);
                }
            }
        }
    }

    /// Writes the picture as PNG.
    ///
    /// # Errors
    /// What the writer reports.
    pub fn write_png(&self, out: impl Write) -> io::Result<()> {
        let size = |n: usize| u32::try_from(n).map_err(|_| io::Error::other("the picture is too large"));
        let mut encoder = png::Encoder::new(out, size(self.width)?, size(self.height)?);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(self.points.as_flattened())?;
        writer.finish()?;
        Ok(())
    }
}

/// The colour for a place between cold (0) and warm (1).
pub fn colour(place: f64) -> Colour {
    let last = THERMAL.len() - 1;
    let at = place.clamp(0.0, 1.0) * last as f64;
    let (low, high) = (THERMAL[at.floor() as usize], THERMAL[at.ceil() as usize]);
    std::array::from_fn(|i| (f64::from(low[i]) + (f64::from(high[i]) - f64::from(low[i])) * at.fract()).round() as u8)
}

/// Sizes of a picture for fields of up to 1,400 points across; larger ones have everything twice as large, and so on.
const MARGIN: usize = 24;
const TITLE: usize = 58;
const LEGEND: usize = 36;

/// Paints a field with a title (large) and a line below it (small). Where several nodes computed it, each its share
/// of the rows, lines
/// show where their rows meet, and whose they are.
pub fn paint(field: &Field, title: &str, below: &str, nodes: usize) -> Picture {
    let zoom = (720 / field.columns.max(1)).clamp(1, 8);
    let (width, height) = ((field.columns * zoom).max(480), field.rows * zoom);
    let scale = (width / 700).max(1);
    let (margin, top) = (MARGIN * scale, TITLE * scale);
    let mut picture = Picture::new(width + 2 * margin, height + top + LEGEND * scale + margin, PAPER);
    picture.text(margin, 14 * scale, 2 * scale, INK, title);
    picture.text(margin, 38 * scale, scale, INK, below);
    let (cold, warm) = degrees(field);
    let left = margin + (width - field.columns * zoom) / 2;
    for row in 0..field.rows {
        for column in 0..field.columns {
            let shade = cell_colour(field, row, column, cold, warm);
            picture.fill(left + column * zoom, top + row * zoom, zoom, zoom, shade);
        }
    }
    borders(&mut picture, (left, top), (field.columns * zoom, height), scale, nodes);
    legend(&mut picture, top + height + 16 * scale, width, scale, (cold, warm));
    picture
}

/// Whole degrees that enclose all temperatures.
fn degrees(field: &Field) -> (i32, i32) {
    let (low, high) = field.extremes().unwrap_or((0, DEGREE));
    let (cold, warm) = (low.div_euclid(DEGREE), high.div_euclid(DEGREE) + 1);
    (cold, warm.max(cold + 1))
}

fn cell_colour(field: &Field, row: usize, column: usize, cold: i32, warm: i32) -> Colour {
    let cell = field.cells[row * field.columns + column];
    if cell != LAND {
        return colour((f64::from(cell) / f64::from(DEGREE) - f64::from(cold)) / f64::from(warm - cold));
    }
    let rows = row.saturating_sub(1)..(row + 2).min(field.rows);
    let wet = rows
        .flat_map(|r| (column.saturating_sub(1)..(column + 2).min(field.columns)).map(move |c| (r, c)))
        .any(|(r, c)| field.cells[r * field.columns + c] != LAND);
    match wet {
        true => COAST,
        // A fine hatch tells land from water also where the colour does not.
        false if (row + column).is_multiple_of(6) => HILL,
        false => GROUND,
    }
}

/// Dashes in ink and paper by turns, which are seen on every colour, and the nodes' names.
fn borders(
    picture: &mut Picture,
    (left, top): (usize, usize),
    (width, height): (usize, usize),
    scale: usize,
    nodes: usize,
) {
    if nodes < 2 {
        return;
    }
    let dash = 8 * scale;
    for node in 0..nodes {
        let from = top + height * node / nodes;
        if node > 0 {
            for at in (0..width).step_by(dash) {
                let colour = if (at / dash).is_multiple_of(2) { INK } else { PAPER };
                picture.fill(left + at, from.saturating_sub(scale), dash.min(width - at), 2 * scale, colour);
            }
        }
        let name = format!("node {node}");
        let (high, wide) = (font::HEIGHT * scale + 6 * scale, font::width(&name) * scale + 8 * scale);
        picture.fill(left + 6 * scale, from + 6 * scale, wide, high, PAPER);
        picture.text(left + 10 * scale, from + 9 * scale, scale, INK, &name);
    }
}

fn legend(picture: &mut Picture, top: usize, width: usize, scale: usize, (cold, warm): (i32, i32)) {
    let (bar, thick, margin) = (width * 3 / 4, 14 * scale, MARGIN * scale);
    for x in 0..bar {
        picture.fill(margin + x, top, 1, thick, colour(x as f64 / (bar - 1) as f64));
    }
    let span = warm - cold;
    let step = [1, 2, 5, 10, 20, 50, 100].into_iter().find(|step| span / step <= 10).unwrap_or(span);
    for degree in (cold..=warm).filter(|d| d.rem_euclid(step) == 0) {
        let x = margin + (bar - 1) * (degree - cold) as usize / span as usize;
        picture.fill(x, top + thick, scale, 4 * scale, INK);
        let label = format!("{degree}°C");
        picture.text(x.saturating_sub(font::width(&label) * scale / 2), top + 22 * scale, scale, INK, &label);
    }
    let land = margin + bar + 28 * scale;
    picture.fill(land, top, thick, thick, COAST);
    picture.fill(land + scale, top + scale, thick - 2 * scale, thick - 2 * scale, GROUND);
    picture.text(land + 20 * scale, top + 4 * scale, scale, INK, "land");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Field {
        let mut cells = vec![DEGREE; 64];
        cells[63] = 9 * DEGREE;
        for row in 2..7 {
            cells[row * 8 + 2..row * 8 + 7].fill(LAND);
        }
        Field { rows: 8, columns: 8, cells }
    }

    #[test]
    fn warm_water_cold_water_and_land_look_different() {
        let picture = paint(&small(), "A sea", "of sixty-four cells", 1);
        let left = MARGIN + (480 - 64) / 2;
        let at = |row: usize, column: usize| picture.at(left + column * 8 + 4, TITLE + row * 8 + 4);
        assert_eq!(at(0, 0), colour(0.0));
        assert_eq!(at(7, 7), colour(8.0 / 9.0));
        assert_eq!(at(2, 2), COAST);
        assert!([GROUND, HILL].contains(&at(4, 4)));
    }

    #[test]
    fn borders_between_nodes_are_seen_on_every_colour() {
        let field = Field { rows: 400, columns: 800, cells: vec![DEGREE; 320_000] };
        let (one, two) = (paint(&field, "", "", 1), paint(&field, "", "", 2));
        let row = TITLE + 200;
        let colours: std::collections::BTreeSet<Colour> = (0..800).map(|x| two.at(MARGIN + x, row)).collect();
        assert_eq!(colours, [INK, PAPER].into(), "dark and light by turns");
        assert!((0..800).all(|x| one.at(MARGIN + x, row) == colour(0.0)), "one node has no border");
    }

    #[test]
    fn letters_are_drawn_in_ink_with_soft_edges() {
        let mut picture = Picture::new(60, 40, PAPER);
        picture.text(8, 8, 3, INK, "o/");
        let points = || (0..40).flat_map(|y| (0..60).map(move |x| (x, y))).map(|(x, y)| picture.at(x, y));
        assert!(points().any(|p| p == INK) && points().any(|p| p != INK && p != PAPER));
    }

    #[test]
    fn the_file_is_a_png_of_the_right_size() {
        let picture = paint(&small(), "A sea", "", 1);
        let mut bytes = Vec::new();
        picture.write_png(&mut bytes).unwrap();
        let reader = png::Decoder::new(io::Cursor::new(&bytes)).read_info().unwrap();
        let (width, height) = (reader.info().width as usize, reader.info().height as usize);
        assert_eq!((width, height), (picture.width, picture.height));
    }

    #[test]
    fn the_colours_grow_lighter_all_the_way() {
        let light = |c: Colour| 0.2126 * f64::from(c[0]) + 0.7152 * f64::from(c[1]) + 0.0722 * f64::from(c[2]);
        let steps: Vec<f64> = (0..=50).map(|i| light(colour(f64::from(i) / 50.0))).collect();
        assert!(steps.windows(2).all(|w| w[0] < w[1]), "{steps:?}");
    }
}
