//! Reading and writing numbers in network byte order, with checks instead of panics.

/// What is wrong with bytes from the network.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WireError {
    /// Fewer bytes than the message needs.
    #[error("too short")]
    Short,
    /// More bytes than the message has.
    #[error("bytes left over")]
    Trailing,
    /// Nobody sends this type of message.
    #[error("unknown message type {0}")]
    BadType(u16),
    /// A field holds what it cannot hold.
    #[error("bad {0}")]
    BadValue(&'static str),
}

/// A checked cursor over bytes.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads from the front of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (head, tail) = self.bytes.split_first_chunk::<N>().ok_or(WireError::Short)?;
        self.bytes = tail;
        Ok(*head)
    }

    /// The next byte.
    ///
    /// # Errors
    /// [`WireError::Short`] when there is none; so for all the other readers.
    pub fn u8(&mut self) -> Result<u8, WireError> {
        Ok(self.array::<1>()?[0])
    }

    /// The next two bytes.
    #[allow(clippy::missing_errors_doc)]
    pub fn u16(&mut self) -> Result<u16, WireError> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    /// The next four bytes.
    #[allow(clippy::missing_errors_doc)]
    pub fn u32(&mut self) -> Result<u32, WireError> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    /// The next eight bytes.
    #[allow(clippy::missing_errors_doc)]
    pub fn u64(&mut self) -> Result<u64, WireError> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    /// A number as [`Put::put_var`] writes it.
    ///
    /// # Errors
    /// [`WireError::Short`], and [`WireError::BadValue`] when it has more bits than 64.
    pub fn var(&mut self) -> Result<u64, WireError> {
        let mut value = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.u8()?;
            let part = u64::from(byte & 0x7f);
            if part << shift >> shift != part {
                break;
            }
            value |= part << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(WireError::BadValue("number"))
    }

    /// The same, of a number of 32 bits.
    #[allow(clippy::missing_errors_doc)]
    pub fn var32(&mut self) -> Result<u32, WireError> {
        u32::try_from(self.var()?).map_err(|_| WireError::BadValue("number"))
    }

    /// The next `count` bytes.
    #[allow(clippy::missing_errors_doc)]
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let (head, tail) = self.bytes.split_at_checked(count).ok_or(WireError::Short)?;
        self.bytes = tail;
        Ok(head)
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.bytes)
    }

    /// Makes sure that nothing is left.
    ///
    /// # Errors
    /// [`WireError::Trailing`] when something is.
    pub fn finish(&self) -> Result<(), WireError> {
        if self.bytes.is_empty() { Ok(()) } else { Err(WireError::Trailing) }
    }
}

/// Appending numbers in network byte order.
pub trait Put {
    /// Appends bytes as they are.
    fn put_bytes(&mut self, bytes: &[u8]);
    /// Appends one byte.
    fn put_u8(&mut self, value: u8) {
        self.put_bytes(&[value]);
    }
    /// Appends two bytes.
    fn put_u16(&mut self, value: u16) {
        self.put_bytes(&value.to_be_bytes());
    }
    /// Appends four bytes.
    fn put_u32(&mut self, value: u32) {
        self.put_bytes(&value.to_be_bytes());
    }
    /// Appends eight bytes.
    fn put_u64(&mut self, value: u64) {
        self.put_bytes(&value.to_be_bytes());
    }
    /// Appends a number in as few bytes as it takes, seven bits in each from the lowest on; all but the last have the
    /// top bit set.
    fn put_var(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.put_u8(value as u8 | 0x80);
            value >>= 7;
        }
        self.put_u8(value as u8);
    }
}

impl Put for Vec<u8> {
    fn put_bytes(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_as_few_bytes_as_they_need() {
        let lens = [(0, 1), (0x7f, 1), (0x80, 2), (0x3fff, 2), (0x4000, 3), (u32::MAX.into(), 5), (u64::MAX, 10)];
        for (number, len) in lens {
            let mut out = Vec::new();
            out.put_var(number);
            assert_eq!((out.len(), Reader::new(&out).var()), (len, Ok(number)));
            let narrow = u32::try_from(number).map_err(|_| WireError::BadValue("number"));
            assert_eq!(Reader::new(&out).var32(), narrow);
            assert_eq!(Reader::new(&out[..len - 1]).var(), Err(WireError::Short));
        }
    }

    #[test]
    fn numbers_of_more_than_64_bits_are_refused() {
        let parse = |last: u8| Reader::new(&[&[0xff; 9][..], &[last]].concat()).var();
        assert_eq!(parse(1), Ok(u64::MAX));
        assert_eq!((parse(2), parse(0x81)), (Err(WireError::BadValue("number")), Err(WireError::BadValue("number"))));
        assert!(Reader::new(&[0x80; 20]).var().is_err());
    }
}
