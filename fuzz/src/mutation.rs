//! Documents that differ from another in a few places: what bytes changed at random seldom are.

use std::sync::LazyLock;

use serde_json::{Map, Number, Value, json};

/// Names and values that the readers know, in the form that libFuzzer reads as well.
static WORDS: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let words = include_str!("../words.dict").lines();
    words
        .filter_map(|line| line.strip_prefix('"')?.strip_suffix('"'))
        .collect()
});

/// A document that differs from this one in up to four places, which depend on the seed alone.
pub fn mutated(document: &Value, seed: u32) -> Value {
    let mut random = Random(seed.into());
    let mut mutated = document.clone();
    for _ in 0..1 + random.below(4) {
        let size = size(&mutated);
        let donor = at(&mut mutated, random.below(size)).clone();
        edit(at(&mut mutated, random.below(size)), donor, &mut random);
    }
    mutated
}

/// How many values a document consists of.
fn size(document: &Value) -> usize {
    1 + match document {
        Value::Array(list) => list.iter().map(size).sum(),
        Value::Object(fields) => fields.values().map(size).sum(),
        _ => 0,
    }
}

/// One of the values that a document consists of; itself where there are not as many.
fn at(document: &mut Value, mut index: usize) -> &mut Value {
    let inner: Box<dyn Iterator<Item = &mut Value>> = match document {
        _ if index == 0 => return document,
        Value::Array(list) => Box::new(list.iter_mut()),
        Value::Object(fields) => Box::new(fields.values_mut()),
        _ => return document,
    };
    index -= 1;
    for value in inner {
        let size = size(value);
        if index < size {
            return at(value, index);
        }
        index -= size;
    }
    unreachable!("it is smaller than it was said to be")
}

/// Changes a value in one way. `donor` is another of the same document.
fn edit(value: &mut Value, donor: Value, random: &mut Random) {
    if random.below(6) == 0 {
        *value = match random.below(2) {
            0 => donor,
            _ => any(random),
        };
        return;
    }
    match value {
        Value::Array(list) => edit_list(list, donor, random),
        Value::Object(fields) => edit_fields(fields, donor, random),
        Value::String(text) => edit_text(text, random),
        Value::Number(number) => *number = edited_number(number, random),
        Value::Bool(flag) => *flag = !*flag,
        Value::Null => *value = any(random),
    }
}

fn edit_list(list: &mut Vec<Value>, donor: Value, random: &mut Random) {
    let place = random.below(list.len().max(1));
    match random.below(4) {
        0 if !list.is_empty() => drop(list.remove(place)),
        1 if !list.is_empty() => list.push(list[place].clone()),
        2 if list.len() > 1 => list.swap(0, place),
        _ => list.insert(place.min(list.len()), donor),
    }
}

fn edit_fields(fields: &mut Map<String, Value>, donor: Value, random: &mut Random) {
    let name = fields.keys().nth(random.below(fields.len().max(1))).cloned();
    match (random.below(4), name) {
        (0, Some(name)) => drop(fields.remove(&name)),
        (1, Some(name)) => {
            let value = fields.remove(&name).unwrap_or_default();
            fields.insert(word(random), value);
        }
        (2, _) => drop(fields.insert(word(random), donor)),
        _ => drop(fields.insert(word(random), any(random))),
    }
}

fn edit_text(text: &mut String, random: &mut Random) {
    let mut chars: Vec<char> = text.chars().collect();
    let place = random.below(chars.len() + 1);
    match random.below(6) {
        0 | 1 => return *text = word(random),
        2 if place < chars.len() => drop(chars.remove(place)),
        3 => chars.splice(place..place, word(random).chars()).for_each(drop),
        4 => chars.insert(
            place,
            random.one_of(&['0', '9', '-', '.', '/', '~', 'e', 'é', '\u{1f4a1}', '\n', '\0']),
        ),
        _ => chars.splice(place..place, quantity(random).chars()).for_each(drop),
    }
    *text = chars.into_iter().collect();
}

fn edited_number(number: &Number, random: &mut Random) -> Number {
    let integer = number.as_i64().unwrap_or_default();
    match random.below(6) {
        0 => integer.wrapping_add(1).into(),
        1 => integer.wrapping_sub(1).into(),
        2 => integer.wrapping_neg().into(),
        3 => random
            .one_of(&[0, 1, 10, 1_000, i64::from(i32::MAX), i64::MAX, i64::MIN])
            .into(),
        4 => integer.wrapping_mul(random.one_of(&[2, 10, 1_000])).into(),
        _ => Number::from_f64(integer as f64 / random.one_of(&[2.0, 10.0, 3.0, 1e30])).unwrap_or_else(|| 0.into()),
    }
}

fn any(random: &mut Random) -> Value {
    match random.below(8) {
        0 => Value::Null,
        1 => json!([]),
        2 => json!({}),
        3 => random.one_of(&[true, false]).into(),
        4 => random.one_of(&[-1, 0, 1, 60, 300, 1_000, i64::MAX]).into(),
        5 => quantity(random).into(),
        _ => word(random).into(),
    }
}

fn word(random: &mut Random) -> String {
    random.one_of(&WORDS).to_owned()
}

fn quantity(random: &mut Random) -> String {
    let number = random.one_of(&[
        "0",
        "1",
        "2",
        "0.1",
        "100",
        "1.5",
        "-1",
        "9223372036854775807",
        "99999999999999999999",
    ]);
    let suffix = random.one_of(&["", "n", "u", "m", "k", "M", "Ki", "Mi", "Gi", "Ti", "Ei", "e3", "e-9"]);
    format!("{number}{suffix}")
}

/// SplitMix64: the same numbers for the same seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    fn one_of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}
