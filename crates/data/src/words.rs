//! Enums whose variants go by a word in an experiment file.

/// Makes an enum with its words: `pub enum Missing { Refuse = "refuse", Drop = "drop" }`.
macro_rules! words {
    ($(#[$about:meta])* pub enum $name:ident {
        $($(#[$detail:meta])* $variant:ident = $word:literal,)+
    }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $($(#[$detail])* #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            /// All of them, in order.
            pub const ALL: [Self; [$($word),+].len()] = [$(Self::$variant),+];

            /// The word that it goes by.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }
    };
}

pub(crate) use words;
