//! The sentences of the clinic, as data.
//!
//! One small language serves both tasks. `{p}`, `{t}` and `{x}` are a problem, a test and a
//! treatment; `p< .. >`, `t< .. >` and `x< .. >` mark words as one; `{+}` is a disease the patient
//! has and `{-}` one the patient has not, or has no longer; `{who}`, `{name}` and `{n}` are a
//! person, a family name and a number; `{list}` repeats swinging words. Everything else is itself
//! and carries no label.

/// A section of a note: the ways to head it, and its sentences.
pub(super) struct Section {
    /// How common it is where no hospital has a say.
    pub weight: f64,
    /// Headings; a hospital has a favourite.
    pub headings: &'static [&'static str],
    /// Sentences; a hospital uses some more than others.
    pub sentences: &'static [&'static str],
}

/// Sections for the `concepts` task. The last three share their lists word for word: only the
/// heading, many words away, says whether they name tests, treatments or food.
pub(super) const SECTIONS: &[Section] = &[
    Section {
        weight: 3.0,
        headings: &["history of present illness :", "hpi :", "presenting complaint :", "cc -"],
        sentences: &[
            "{who} presents with {p} and {p} .",
            "{who} has had {p} for {n} days .",
            "{who} denies {p} , {p} or {p} .",
            "{who} came in after {p} and was found to have {p} .",
            "{p} got worse after {x} was stopped .",
            "there was no {p} and no {p} .",
            "{who} felt cold on the walk home and then noticed {p} .",
            "{p} began {n} days after discharge .",
            "last fall {who} had {p} .",
            "{who} feels pressure from work but reports no {p} .",
            "p< ms > was diagnosed {n} years ago after {p} .",
            "ms {name} reports {p} .",
            "on the block where {who} lives others have {p} too .",
            "{who} is of mixed culture and speaks through an interpreter .",
            "a rough patch at home made {p} harder to bear .",
            "severe weather kept {who} from the clinic .",
        ],
    },
    Section {
        weight: 3.0,
        headings: &["hospital course :", "course :", "brief course by problem :", "events -"],
        sentences: &[
            "{who} was given {x} for {p} with good effect .",
            "{t} showed {p} .",
            "{t} was negative for {p} , so {x} was stopped .",
            "{who} went for {t} and then {x} .",
            "{x} was held because of {p} .",
            "{p} improved with {x} .",
            "a {n} day course of {x} was completed .",
            "x< pt > worked with {who} on stairs .",
            "pt was seen by the team and slept well .",
            "x< ms > {n} mg iv was given for {p} .",
            "the culture of the ward was explained to {who} .",
            "t< culture > grew nothing after {n} days .",
            "p< discharge > from the wound was sent for {t} .",
            "discharge was delayed for a new address .",
            "p< depression > was treated with {x} .",
            "t< ekg > with st depression in {n} leads led to {t} .",
            "x< a shock > was delivered for p< vf > and {p} resolved .",
            "the news came as a shock to the family .",
            "{who} stayed on line with the bank for an hour .",
        ],
    },
    Section {
        weight: 3.0,
        headings: &["physical examination :", "pe :", "exam on admission :", "findings -"],
        sentences: &[
            "t< pressure > {n} , pulse {n} .",
            "no {p} was seen on {t} .",
            "on ra {who} had t< sats > of {n} .",
            "p< ra > of the hands with p< swollen joints > .",
            "hands cold , no {p} .",
            "t< ms > intact , follows commands .",
            "p< pe > was feared , so {t} was done .",
            "{t} with {p} , otherwise normal .",
            "t< stool > brown , guaiac negative .",
            "p< bloody stool > in the vault .",
            "sitting on a stool , in no distress .",
            "chest with p< crackles > , back without {p} .",
            "the old chart could not be found .",
        ],
    },
    Section {
        weight: 3.0,
        headings: &["plan :", "assessment and plan :", "recommendations :", "to do -"],
        sentences: &[
            "will start {x} and repeat {t} in {n} days .",
            "check {t} and {t} today .",
            "if {p} returns , give {x} .",
            "no need for {t} or {x} now .",
            "continue {x} , follow {t} .",
            "t< pt > and {t} before {x} .",
            "consult x< pt > for {p} .",
            "pt to call if {p} .",
            "discuss {x} with dr {name} .",
            "discharge home with {x} .",
            "the chronic care team will call about {x} .",
            "the stress of travel should be avoided .",
            "t< stress > with imaging to look for {p} .",
        ],
    },
    Section {
        weight: 1.0,
        headings: &["laboratory data :", "labs :", "results :", "chemistry -"],
        sentences: &["t{list} .", "t{list} , and {t} without {p} .", "{t} pending , t{list} ."],
    },
    Section {
        weight: 1.0,
        headings: &["medications :", "meds :", "home regimen :", "rx -"],
        sentences: &["x{list} .", "x{list} , and {x} for {p} .", "{x} daily , x{list} ."],
    },
    Section {
        weight: 1.0,
        headings: &["diet :", "nutrition :", "social and diet :", "intake -"],
        sentences: &[
            "o{list} .",
            "{who} was told to eat foods with o{list} .",
            "no allergies to o{list} , lives with family .",
        ],
    },
];

/// Sentences about one or more diseases, for the `diagnosis` task.
pub(super) const STATEMENTS: &[&str] = &[
    "{who} was admitted with {+} .",
    "{+} was confirmed on {t} and treated .",
    "{x} was given for {+} .",
    "the stay was complicated by {+} .",
    "{who} is followed for {+} and takes {x} .",
    "known {+} , stable on {x} .",
    "{+} and {+} were both active during the stay .",
    "at first {+} seemed unlikely but {t} proved it .",
    "not only {+} but also {+} needed {x} .",
    "there was no doubt about {+} .",
    "{who} never stopped {x} for {+} .",
    "the family was told that {who} has {+} .",
    "no evidence of {-} .",
    "{who} denies {-} , {-} and {-} .",
    "{-} was ruled out by {t} .",
    "{-} was considered but {t} was clean .",
    "{t} was done to look for {-} and was normal .",
    "mother had {-} and died of {-} .",
    "the brother of {who} is treated for {-} .",
    "{-} in childhood , resolved .",
    "{who} had {-} {n} years ago and is cured .",
    "{who} worries about {-} because the father had it .",
    "{who} will return if signs of {-} appear .",
    "x-ray report of another patient with {-} was removed from the chart .",
    "no {-} , but {+} was found .",
    "{+} was found , though not {-} .",
    "{-} was ruled out and {+} was treated with {x} .",
    "{who} has {+} ; the mother had {-} .",
];

/// Lists under a heading, for the `diagnosis` task; the heading decides.
pub(super) const LISTS: &[&str] = &[
    "discharge diagnoses : {+} , {+} .",
    "final dx : {+} , {+} , {+} .",
    "active issues - {+} .",
    "family history : {-} , {-} .",
    "fhx : {-} , {-} , {-} .",
    "past problems , resolved : {-} , {-} .",
    "excluded - {-} .",
];

/// Sentences of a discharge note that decide nothing but use words that elsewhere do.
pub(super) const FILLERS: &[&str] = &[
    "pe : lungs clear , abdomen soft .",
    "sats {n} on ra .",
    "ms {name} was seen with an interpreter .",
    "pain was eased with ms and {x} .",
    "{who} walked {n} metres with pt .",
    "no acute distress , no new address .",
    "{t} was done .",
    "{who} was treated well by the team and will be followed .",
    "mother and brother were present .",
    "home with {x} , call if there are questions .",
];
