//! Some of the nodes of a site.

/// The numbers of 64 positions are in one word.
const WORD: usize = u64::BITS as usize;

/// Some of the nodes of a site, by their [positions](super::nodes::Nodes): a bit for each. Those after the last word are not among
/// them. Equal where the words are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeSet(Vec<u64>);

impl NodeSet {
    /// None of so many.
    pub fn none_of(nodes: usize) -> Self {
        Self(vec![0; nodes.div_ceil(WORD)])
    }

    /// Those that are meant. Cost: a pass without a branch for each; 64 at once become a word.
    pub fn of<T>(nodes: &[T], is_meant: impl Fn(&T) -> bool) -> Self {
        let word = |nodes: &[T]| {
            nodes
                .iter()
                .rev()
                .fold(0, |word, node| word << 1 | u64::from(is_meant(node)))
        };
        Self(nodes.chunks(WORD).map(word).collect())
    }

    /// Whether the node at this position is among them.
    pub fn contains(&self, position: usize) -> bool {
        let word = self.0.get(position / WORD);
        word.is_some_and(|word| word >> (position % WORD) & 1 == 1)
    }

    /// Puts the node at this position among them, or not. It is one of those of which the set was made.
    pub fn set(&mut self, position: usize, is_member: bool) {
        let (word, bit) = (&mut self.0[position / WORD], 1 << (position % WORD));
        *word = if is_member { *word | bit } else { *word & !bit };
    }

    /// And those.
    pub fn add(&mut self, others: &Self) {
        self.0
            .iter_mut()
            .zip(&others.0)
            .for_each(|(word, others)| *word |= others);
    }

    /// Of those that are `unsure` as well, only the ones that are `kept` stay.
    pub fn retain(&mut self, unsure: &Self, kept: impl Fn(usize) -> bool) {
        for (number, (word, unsure)) in self.0.iter_mut().zip(&unsure.0).enumerate() {
            let lost = bits(*word & unsure).filter(|bit| !kept(number * WORD + bit));
            *word &= !lost.fold(0, |lost, bit| lost | 1 << bit);
        }
    }

    /// How many they are. Cost: a pass over the words.
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// Their positions, in order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + Clone {
        static NONE: NodeSet = NodeSet(vec![]);
        self.without(&NONE)
    }

    /// The positions of those that are not among `others`, in order.
    pub fn without<'s>(&'s self, others: &'s Self) -> impl Iterator<Item = usize> + Clone + 's {
        let words = self.0.iter().enumerate();
        words.flat_map(|(number, word)| {
            let others = others.0.get(number).copied().unwrap_or(0);
            bits(word & !others).map(move |bit| number * WORD + bit)
        })
    }
}

/// The numbers of the bits that are set.
fn bits(mut word: u64) -> impl Iterator<Item = usize> + Clone {
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros() as usize;
        word &= word.checked_sub(1)?;
        Some(bit)
    })
}
