//! The only reader of Kubernetes' protobuf: an object in, the JSON text of its fields that are read out.
//!
//! An API server encodes an object in protobuf once for all who watch it, and in JSON for each of them. Nothing is made of an object
//! but its text, which is a few times as long at the most.
//!
//! Source: `k8s.io/apimachinery/pkg/runtime`, whose serializer puts each object into an `Unknown`.

mod encoding;
mod fields;

use encoding::{Reader, Value};
use fields::{Field, Form};

/// What each object begins with.
const MAGIC: &[u8] = b"k8s\0";

/// Why an object or event was not read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The bytes are no message.
    #[error("not protobuf: {0}")]
    Encoding(&'static str),
    /// A field has not the type that Kubernetes gives it.
    #[error("{0}: not as Kubernetes has it")]
    Field(&'static str),
    /// It does not begin as each object does.
    #[error("not an object in Kubernetes' protobuf: it begins with {0:?}")]
    Magic(Box<[u8]>),
    /// A kind that is not read.
    #[error("{kind} of {api_version} is not read in protobuf")]
    Kind {
        /// Its apiVersion.
        api_version: Box<str>,
        /// Its kind.
        kind: Box<str>,
    },
    /// It cannot be written.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// An event of a watch, as one frame of its stream has it.
#[derive(Debug)]
pub struct Event<'a> {
    /// `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` or `ERROR`.
    pub kind: &'a [u8],
    /// The object it is about; a Status where it is an error.
    pub object: &'a [u8],
}

impl<'a> Event<'a> {
    /// Reads a frame.
    ///
    /// # Errors
    /// It is no event.
    pub fn decode(frame: &'a [u8]) -> Result<Self, Error> {
        let [kind, extension] = parts(frame)?;
        let [object, _] = parts(extension)?;
        Ok(Self { kind, object })
    }
}

/// The JSON text of an object, with those of its fields that edgeward reads: a Pod, Node, Namespace, PersistentVolumeClaim,
/// PersistentVolume, StorageClass or Status. Empty texts, false and zero are left out where Go has no pointer. Bytes that are no
/// UTF-8 are replaced by U+FFFD. Cost: a pass over the object, without what it skips.
///
/// # Errors
/// It is no object, or of another kind.
pub fn to_json(object: &[u8]) -> Result<String, Error> {
    let Some(unknown) = object.strip_prefix(MAGIC) else {
        let beginning = object.iter().copied().take(MAGIC.len()).collect();
        return Err(Error::Magic(beginning));
    };
    let [types, raw] = parts(unknown)?;
    let [api_version, kind] = parts(types)?.map(String::from_utf8_lossy);
    let fields = fields::of(&api_version, &kind).ok_or_else(|| Error::Kind {
        api_version: (&*api_version).into(),
        kind: (&*kind).into(),
    })?;
    let mut json = Vec::with_capacity(raw.len());
    write_object(raw, fields, &mut json)?;
    String::from_utf8(json).map_err(|_| Error::Encoding("a text is no UTF-8"))
}

/// The first two fields of a message, empty where they are not there.
fn parts(message: &[u8]) -> Result<[&[u8]; 2], Error> {
    let mut parts = [&[][..]; 2];
    for field in Reader::of(message) {
        if let (number @ (1 | 2), Value::Bytes(bytes)) = field? {
            parts[number as usize - 1] = bytes;
        }
    }
    Ok(parts)
}

fn write_object(message: &[u8], fields: &[Field], json: &mut Vec<u8>) -> Result<(), Error> {
    json.push(b'{');
    let mut object = Object { json, is_empty: true };
    object.write_fields(message, fields)?;
    json.push(b'}');
    Ok(())
}

/// An object that is being written.
struct Object<'j> {
    json: &'j mut Vec<u8>,
    is_empty: bool,
}

impl Object<'_> {
    fn write_fields(&mut self, message: &[u8], fields: &[Field]) -> Result<(), Error> {
        // The elements of a list, and the entries of a map, are fields of the same number that follow each other.
        let mut open: Option<&Field> = None;
        for field in Reader::of(message) {
            let (number, value) = field?;
            if let Some(open) = open.take_if(|open| open.number != number) {
                self.json.push(open.form.end());
            }
            let Some(field) = fields.iter().find(|field| field.number == number) else {
                continue;
            };
            match (&field.form, &value) {
                (Form::Inline(fields), Value::Bytes(message)) => self.write_fields(message, fields)?,
                (Form::List(form) | Form::Map(form), Value::Bytes(element)) => {
                    match open {
                        Some(_) => self.json.push(b','),
                        None => {
                            self.write_name(field);
                            self.json.push(field.form.beginning());
                            open = Some(field);
                        }
                    }
                    match field.form {
                        Form::Map(_) => write_entry(element, form, field, self.json)?,
                        _ => write_value(&value, form, field, self.json)?,
                    }
                }
                (form, value) if field.is_pointer || !value.is_zero() || form.is_message() => {
                    self.write_name(field);
                    write_value(value, form, field, self.json)?;
                }
                _ => {}
            }
        }
        if let Some(open) = open {
            self.json.push(open.form.end());
        }
        Ok(())
    }

    fn write_name(&mut self, field: &Field) {
        if !self.is_empty {
            self.json.push(b',');
        }
        self.is_empty = false;
        self.json.push(b'"');
        self.json.extend_from_slice(field.name.as_bytes());
        self.json.extend_from_slice(b"\":");
    }
}

fn write_entry(entry: &[u8], form: &Form, field: &Field, json: &mut Vec<u8>) -> Result<(), Error> {
    let [key, value] = parts(entry)?;
    write_text(key, json)?;
    json.push(b':');
    write_value(&Value::Bytes(value), form, field, json)
}

fn write_value(value: &Value<'_>, form: &Form, field: &Field, json: &mut Vec<u8>) -> Result<(), Error> {
    match (form, value) {
        (Form::Text, Value::Bytes(text)) => write_text(text, json),
        (Form::Quantity, Value::Bytes(quantity)) => write_text(parts(quantity)?[0], json),
        (Form::Time, Value::Bytes(time)) => write_time(time, json),
        (Form::Presence, Value::Bytes(_)) => write_object(&[], &[], json),
        (Form::Object(fields), Value::Bytes(message)) => write_object(message, fields, json),
        (Form::Flag, Value::Number(number)) => Ok(serde_json::to_writer(json, &(*number != 0))?),
        // A negative number is its two's complement.
        (Form::Number, Value::Number(number)) => Ok(serde_json::to_writer(json, &number.cast_signed())?),
        _ => Err(Error::Field(field.name)),
    }
}

fn write_text(text: &[u8], json: &mut Vec<u8>) -> Result<(), Error> {
    Ok(serde_json::to_writer(json, &String::from_utf8_lossy(text))?)
}

/// A time to the second, as Go writes it; null where it has none. One that no calendar has is empty.
fn write_time(time: &[u8], json: &mut Vec<u8>) -> Result<(), Error> {
    let mut seconds = None;
    for field in Reader::of(time) {
        if let (1, Value::Number(number)) = field? {
            seconds = Some(number.cast_signed());
        }
    }
    let time = seconds.map(|seconds| {
        let time = jiff::Timestamp::from_second(seconds);
        time.map_or_else(|_| String::new(), |time| time.to_string())
    });
    Ok(serde_json::to_writer(json, &time)?)
}

#[cfg(test)]
mod tests;
