//! Numbers in order of use.

/// No number: the end of the list.
const NONE: u32 = u32::MAX;

/// A list of small numbers, each in it at most once, in order of use. Every operation takes constant
/// time and, once a number was in the list, no memory.
#[derive(Clone, Debug)]
pub(super) struct Lru {
    links: Vec<Link>,
    oldest: u32,
    newest: u32,
}

#[derive(Copy, Clone, Debug)]
struct Link {
    older: u32,
    newer: u32,
}

impl Lru {
    pub(super) const fn new() -> Self {
        Self { links: Vec::new(), oldest: NONE, newest: NONE }
    }

    /// The number that was not used for longest.
    pub(super) fn oldest(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    /// Puts a number that is not in the list at its newest end.
    pub(super) fn push(&mut self, number: u32) {
        let place = number as usize;
        if place >= self.links.len() {
            self.links.resize(place + 1, Link { older: NONE, newer: NONE });
        }
        self.links[place] = Link { older: self.newest, newer: NONE };
        match self.newest {
            NONE => self.oldest = number,
            before => self.links[before as usize].newer = number,
        }
        self.newest = number;
    }

    /// Takes a number that is in the list out of it.
    pub(super) fn remove(&mut self, number: u32) {
        let Link { older, newer } = self.links[number as usize];
        match older {
            NONE => self.oldest = newer,
            older => self.links[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.links[newer as usize].older = older,
        }
    }

    /// Makes a number that is in the list the newest.
    pub(super) fn touch(&mut self, number: u32) {
        if number != self.newest {
            self.remove(number);
            self.push(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_out_in_order_of_their_last_use() {
        let mut list = Lru::new();
        for number in [4, 1, 3, 0, 2] {
            list.push(number);
        }
        list.touch(4);
        list.touch(3);
        list.touch(3);
        list.remove(0);
        let mut order = Vec::new();
        while let Some(number) = list.oldest() {
            list.remove(number);
            order.push(number);
        }
        assert_eq!(order, [1, 2, 4, 3]);
        list.push(7);
        assert_eq!(list.oldest(), Some(7));
    }
}
