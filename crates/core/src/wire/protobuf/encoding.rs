//! Protobuf's encoding: a message is a row of fields, each with its number. Source: protobuf.dev, "Encoding".

use super::Error;

/// What a field has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value<'a> {
    /// A number or a truth value.
    Number(u64),
    /// A text, a message, or something else with a length.
    Bytes(&'a [u8]),
    /// A number of four or eight bytes, which none that is read has.
    Fixed,
}

impl Value<'_> {
    /// Whether it is what its type has where nothing is set.
    pub(super) fn is_zero(&self) -> bool {
        matches!(self, Value::Number(0) | Value::Bytes([]))
    }
}

/// The fields of a message, in their order, up to the first fault.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn of(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    fn field(&mut self) -> Result<(u32, Value<'a>), Error> {
        let key = self.number()?;
        let number = u32::try_from(key >> 3).map_err(|_| Error::Encoding("a field's number is too large"))?;
        let value = match key & 7 {
            0 => Value::Number(self.number()?),
            1 => self.bytes(8).map(|_| Value::Fixed)?,
            2 => {
                let length = self.number()?;
                Value::Bytes(self.bytes(usize::try_from(length).unwrap_or(usize::MAX))?)
            }
            5 => self.bytes(4).map(|_| Value::Fixed)?,
            _ => return Err(Error::Encoding("a field of an unknown type")),
        };
        Ok((number, value))
    }

    /// Seven bits a byte, the lowest first; each byte but the last has its highest bit set.
    fn number(&mut self) -> Result<u64, Error> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.bytes(1)?[0];
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Error::Encoding("a number of too many bytes"))
    }

    fn bytes(&mut self, length: usize) -> Result<&'a [u8], Error> {
        let (bytes, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or(Error::Encoding("a message ends too early"))?;
        self.rest = rest;
        Ok(bytes)
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Result<(u32, Value<'a>), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}
