//! Which columns a file offers, and how levels become rows and lists.
//!
//! A leaf's path tells how many of its ancestors may be absent (definition levels) and how many
//! repeat (repetition levels). A flat column repeats nowhere and a list once; the three shapes that
//! writers give a list differ only in where along the path the repeating node stands, so one rule
//! reads them all. A field of a structure, or of a list of structures, is a column of its own, which is there
//! for whoever asks for it. Structures as such, maps and lists of lists are refused, but only when asked for.

use parquet::basic::{ConvertedType, LogicalType, Repetition, Type as Physical};
use parquet::schema::types::Type;

use crate::formats::class_names::ClassNames;

/// A column by the name it has at the top of the schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Column {
    pub name: String,
    /// How it reads, or what it is that is not read.
    pub leaf: Result<Leaf, &'static str>,
    /// Whether it is a field of a structure, by the name `structure.field`: read only where it is asked for.
    pub is_inner: bool,
    /// The names of its classes, where the file has numbers and names for them.
    pub classes: Option<ClassNames>,
}

/// How the values of a column become rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Leaf {
    /// Which of the file's leaves it is.
    pub index: usize,
    /// Whether whole numbers have no sign.
    pub is_unsigned: bool,
    /// Whether values are bytes of which nothing says that they are text.
    pub is_bytes: bool,
    /// The definition level of a value that is there.
    pub present: i16,
    /// For a list, the definition level from which on there is an element, even if it is null.
    pub element: Option<i16>,
}

/// The columns of a schema.
pub(super) fn columns(root: &Type) -> Vec<Column> {
    let mut leaves = 0;
    let column = |field: &std::sync::Arc<Type>| {
        let name = field.name().to_owned();
        let mut columns =
            vec![Column { name, leaf: leaf(field, leaves), is_inner: false, classes: None }];
        columns.extend(inner(field, leaves));
        leaves += count(field);
        columns
    };
    root.get_fields().iter().flat_map(column).collect()
}

/// The fields of a structure, or of a list of structures, that are values or lists of their own.
fn inner(top: &Type, first: usize) -> Vec<Column> {
    let Some((structure, above, element)) = structure(top) else { return Vec::new() };
    let (mut columns, mut place) = (Vec::new(), first);
    for field in structure.get_fields() {
        // Inside of a list only plain values are read.
        let is_plain = !field.is_group() && repeats(field) != Some(Repetition::REPEATED);
        let found = leaf(field, place);
        let is_list = found.is_ok_and(|leaf| leaf.element.is_some());
        if is_plain || (element.is_none() && is_list) {
            let leaf = found.map(|leaf| Leaf {
                present: leaf.present + above,
                element: element.or(leaf.element.map(|element| element + above)),
                ..leaf
            });
            let name = format!("{}.{}", top.name(), field.name());
            columns.push(Column { name, leaf, is_inner: true, classes: None });
        }
        place += count(field);
    }
    columns
}

/// The structure at or in a column, the definition level at which it is there, and that of an element where it is
/// in a list. The standard shape of a list has a node between, the older one has not.
fn structure(top: &Type) -> Option<(&Type, i16, Option<i16>)> {
    let (mut node, mut present, mut element) = (top, 0, None);
    for _ in 0..3 {
        match repeats(node) {
            None | Some(Repetition::REQUIRED) => {}
            Some(Repetition::OPTIONAL) => present += 1,
            Some(Repetition::REPEATED) if element.is_some() => return None,
            Some(Repetition::REPEATED) => {
                present += 1;
                element = Some(present);
            }
        }
        if !node.is_group() {
            return None;
        }
        let is_list = |child: &Type| {
            repeats(node) == Some(Repetition::REPEATED)
                || repeats(child) == Some(Repetition::REPEATED)
        };
        match node.get_fields() {
            [only] if only.is_group() && is_list(only) => node = only,
            // A list of plain values is read as what it is.
            [_] if element.is_some() => return None,
            [only] if repeats(only) == Some(Repetition::REPEATED) => return None,
            _ => return Some((node, present, element)),
        }
    }
    None
}

fn repeats(node: &Type) -> Option<Repetition> {
    let info = node.get_basic_info();
    info.has_repetition().then(|| info.repetition())
}

/// How many leaves stand under a node.
fn count(node: &Type) -> usize {
    if node.is_group() { node.get_fields().iter().map(|field| count(field)).sum() } else { 1 }
}

/// The leaf at the end of a path of at most three nodes that does not branch.
fn leaf(top: &Type, index: usize) -> Result<Leaf, &'static str> {
    let (mut present, mut element, mut length) = (0, None, 1);
    let mut node = top;
    loop {
        let info = node.get_basic_info();
        match info.has_repetition().then(|| info.repetition()) {
            None | Some(Repetition::REQUIRED) => {}
            Some(Repetition::OPTIONAL) => present += 1,
            Some(Repetition::REPEATED) if element.is_some() => return Err("a list of lists"),
            Some(Repetition::REPEATED) => {
                present += 1;
                element = Some(present);
            }
        }
        if !node.is_group() {
            break;
        }
        node = match node.get_fields() {
            [only] => only,
            [] => return Err("an empty structure"),
            [_, _, ..] => return Err("a structure or map"),
        };
        length += 1;
    }
    if length > 3 {
        return Err("a nested structure");
    }
    if length > 1 && element.is_none() {
        return Err("a structure");
    }
    let is_unsigned = meaning(node)?;
    let info = node.get_basic_info();
    let is_bytes = node.get_physical_type() == Physical::BYTE_ARRAY
        && info.logical_type_ref().is_none()
        && info.converted_type() == ConvertedType::NONE;
    Ok(Leaf { index, is_unsigned, is_bytes, present, element })
}

/// What is not read, by the older annotation.
const UNREAD: [(ConvertedType, &str); 8] = [
    (ConvertedType::DECIMAL, "a decimal number"),
    (ConvertedType::DATE, "a date"),
    (ConvertedType::TIME_MILLIS, "a time"),
    (ConvertedType::TIME_MICROS, "a time"),
    (ConvertedType::TIMESTAMP_MILLIS, "a timestamp"),
    (ConvertedType::TIMESTAMP_MICROS, "a timestamp"),
    (ConvertedType::BSON, "BSON"),
    (ConvertedType::INTERVAL, "an interval"),
];

/// Whether a leaf's numbers have no sign; what its values stand for where they are not read.
fn meaning(leaf: &Type) -> Result<bool, &'static str> {
    let physical = leaf.get_physical_type();
    if physical == Physical::INT96 {
        return Err("a timestamp of 96 bits");
    }
    if physical == Physical::FIXED_LEN_BYTE_ARRAY {
        return Err("byte strings of a fixed length");
    }
    let info = leaf.get_basic_info();
    // The newer of the two annotations decides.
    if let Some(logical) = info.logical_type_ref() {
        return match logical {
            LogicalType::Integer(integer) => Ok(!integer.is_signed),
            LogicalType::Decimal(_) => Err("a decimal number"),
            LogicalType::Date => Err("a date"),
            LogicalType::Time(_) => Err("a time"),
            LogicalType::Timestamp(_) => Err("a timestamp"),
            LogicalType::Bson => Err("BSON"),
            LogicalType::Uuid => Err("a UUID"),
            LogicalType::Float16 => Err("a number of 16 bits"),
            LogicalType::Geometry(_) | LogicalType::Geography(_) => Err("a shape on a map"),
            LogicalType::Variant(_) | LogicalType::File => Err("a structure"),
            LogicalType::String
            | LogicalType::Map
            | LogicalType::List
            | LogicalType::Enum
            | LogicalType::Unknown
            | LogicalType::Json
            | LogicalType::_Unknown { .. } => Ok(false),
        };
    }
    let older = info.converted_type();
    match UNREAD.iter().find(|(kind, _)| *kind == older) {
        Some((_, what)) => Err(what),
        None => Ok(matches!(
            older,
            ConvertedType::UINT_8
                | ConvertedType::UINT_16
                | ConvertedType::UINT_32
                | ConvertedType::UINT_64
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::schema::parser::parse_message_type;

    fn only(column: &str) -> Result<Leaf, &'static str> {
        let schema = parse_message_type(&format!("message root {{ {column} }}")).unwrap();
        let columns = columns(&schema);
        assert_eq!(columns[0].name.as_str(), "x");
        assert!(columns[1..].iter().all(|column| column.is_inner));
        columns[0].leaf
    }

    fn leaf(present: i16, element: Option<i16>) -> Leaf {
        Leaf { index: 0, is_unsigned: false, is_bytes: true, present, element }
    }

    #[test]
    fn every_shape_of_a_list_is_seen_as_one() {
        assert_eq!(only("required binary x;"), Ok(leaf(0, None)));
        assert_eq!(only("optional binary x;"), Ok(leaf(1, None)));
        // Three levels, then the two older shapes, then a repeated leaf alone.
        let inside = |inner: &str| format!("optional group x {{ {inner} }}");
        let three = inside("repeated group list { optional binary element; }");
        assert_eq!(only(&three), Ok(leaf(3, Some(2))));
        let older = inside("repeated group list { required binary element; }");
        assert_eq!(only(&older), Ok(leaf(2, Some(2))));
        assert_eq!(only(&inside("repeated binary array;")), Ok(leaf(2, Some(2))));
        assert_eq!(only("repeated binary x;"), Ok(leaf(1, Some(1))));
    }

    #[test]
    fn fields_of_a_structure_have_its_name_before_theirs() {
        let schema = "message root { required int32 a; optional group image { optional binary bytes; \
                      optional binary path (STRING); } optional group deep { optional group b { \
                      optional binary c; } } }";
        let columns = columns(&parse_message_type(schema).unwrap());
        let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        assert_eq!(names, ["a", "image", "image.bytes", "image.path", "deep"]);
        let bytes = columns[2].leaf.unwrap();
        assert_eq!((bytes.index, bytes.present, bytes.is_bytes), (1, 2, true));
        let path = columns[3].leaf.unwrap();
        assert_eq!((path.index, path.present, path.is_bytes), (2, 2, false));
    }

    #[test]
    fn deeper_shapes_and_other_values_are_named() {
        let inside = |inner: &str| format!("optional group x {{ {inner} }}");
        let two = inside("required binary a; required binary b;");
        assert_eq!(only(&two), Err("a structure or map"));
        assert_eq!(only(&inside("optional binary a;")), Err("a structure"));
        let lists = inside("repeated group a { repeated binary b; }");
        assert_eq!(only(&lists), Err("a list of lists"));
        let deep = inside("repeated group a { optional group b { optional binary c; } }");
        assert_eq!(only(&deep), Err("a nested structure"));
        assert_eq!(only("optional int32 x (DATE);"), Err("a date"));
        assert_eq!(only("optional int96 x;"), Err("a timestamp of 96 bits"));
        assert_eq!(only("optional int32 x (UINT_32);").map(|leaf| leaf.is_unsigned), Ok(true));
    }
}
