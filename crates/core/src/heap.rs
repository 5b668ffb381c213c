//! How much memory is allocated for what is kept.

use std::borrow::Cow;

/// What a block of so many bytes takes, none for none: 8 bytes beside it, in steps of 16, and 32 at least. So does the malloc of
/// glibc; mimalloc takes up to a quarter more of some sizes.
pub const fn block(bytes: usize) -> usize {
    match bytes {
        0 => 0,
        1..=24 => 32,
        _ => (bytes + 8).next_multiple_of(16),
    }
}

/// The elements of a list, but not what is allocated for each.
pub fn list<T>(list: &Vec<T>) -> usize {
    block(list.capacity() * size_of::<T>())
}

/// The characters of a text; none are allocated for one that is borrowed.
#[expect(clippy::ptr_arg, reason = "what is borrowed is not allocated for it")]
pub fn text(text: &Cow<'_, str>) -> usize {
    match text {
        Cow::Borrowed(_) => 0,
        Cow::Owned(text) => block(text.capacity()),
    }
}
