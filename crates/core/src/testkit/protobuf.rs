//! Protobuf, encoded.

/// A number: seven bits a byte, the lowest first; each byte but the last has its highest bit set.
pub fn number(number: usize) -> Vec<u8> {
    let low = (number & 0x7f) as u8;
    match number >> 7 {
        0 => vec![low],
        rest => [vec![low | 0x80], self::number(rest)].concat(),
    }
}

/// A field that is a number.
pub fn numeric(field: usize, value: usize) -> Vec<u8> {
    [number(field << 3), number(value)].concat()
}

/// A field that is a text or a message.
pub fn field(field: usize, bytes: &[u8]) -> Vec<u8> {
    [&number(field << 3 | 2), &number(bytes.len()), bytes].concat()
}

/// An object of Kubernetes.
pub fn object(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let types = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
    [&b"k8s\0"[..], &field(1, &types), &field(2, raw)].concat()
}

/// An event of a watch.
pub fn event(kind: &str, object: &[u8]) -> Vec<u8> {
    [field(1, kind.as_bytes()), field(2, &field(1, object))].concat()
}
