//! One expression for both families, where each has a field or a function of the same name.

/// `either!(self, Config, config => config.vocab_size)`: a match whose two arms read the same.
macro_rules! either {
    ($of:expr, $kind:ident, $it:ident => $value:expr) => {
        match $of {
            $kind::Bert($it) => $value,
            $kind::Llama($it) => $value,
        }
    };
}

pub(crate) use either;
