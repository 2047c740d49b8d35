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
}

impl Put for Vec<u8> {
    fn put_bytes(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}
