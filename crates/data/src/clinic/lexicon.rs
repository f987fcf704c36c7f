//! The words of the clinic: diseases with their codes, tests, treatments and the words that swing.
//!
//! Every entry lists several ways to write one thing. A hospital has favourites among them, which
//! is where feature shift comes from; words that occur in several lists are there on purpose.

/// A disease that a discharge note may code.
pub(super) struct Disease {
    /// ICD-9 code as MIMIC-III writes it, without the dot.
    pub code: &'static str,
    /// Ways to name it anywhere.
    pub forms: &'static [&'static str],
    /// Sentences that only this disease explains, true of the patient.
    pub evidence: &'static [&'static str],
    /// Sentences with the same words that are not true of the patient.
    pub counter: &'static [&'static str],
}

const fn plain(code: &'static str, forms: &'static [&'static str]) -> Disease {
    Disease { code, forms, evidence: &[], counter: &[] }
}

/// Ordered from common to rare; prevalence falls along the list.
pub(super) const DISEASES: &[Disease] = &[
    plain("4019", &["hypertension", "htn", "high blood pressure", "elevated bp"]),
    plain("4280", &["congestive heart failure", "chf", "heart failure", "pump failure"]),
    plain("42731", &["atrial fibrillation", "afib", "af", "a fib"]),
    plain("41401", &["coronary artery disease", "cad", "coronary disease"]),
    Disease {
        code: "25000",
        forms: &["diabetes mellitus", "dm", "diabetes", "dm2"],
        evidence: &["sugars ran above 300 and metformin was started"],
        counter: &["sugars ran above 300 once after steroids , metformin was not needed"],
    },
    plain("5849", &["acute kidney injury", "aki", "acute renal failure", "arf"]),
    plain("2724", &["hyperlipidemia", "hld", "high cholesterol"]),
    plain("51881", &["respiratory failure", "hypoxic failure", "resp failure"]),
    plain("5990", &["urinary tract infection", "uti", "urine infection"]),
    plain("53081", &["gastroesophageal reflux", "gerd", "acid reflux"]),
    plain("486", &["pneumonia", "pna", "lung infection"]),
    Disease {
        code: "2449",
        forms: &["hypothyroidism", "low thyroid", "underactive thyroid"],
        evidence: &["tsh was high and levothyroxine was raised"],
        counter: &["tsh was high on a mislabelled sample , levothyroxine was not given"],
    },
    plain("496", &["copd", "chronic obstructive lung disease", "emphysema"]),
    plain("2859", &["anemia", "low blood count", "low hematocrit"]),
    plain("0389", &["sepsis", "septicemia", "blood poisoning"]),
    Disease {
        code: "340",
        forms: &["multiple sclerosis", "demyelinating disease"],
        evidence: &[
            "ms relapse with optic neuritis , interferon resumed",
            "ms flare with leg weakness and new plaques",
        ],
        counter: &[
            "ms of the husband keeps {who} busy at home",
            "ms was considered for the plaques but the spine was clean",
        ],
    },
    Disease {
        code: "3940",
        forms: &["mitral stenosis", "rheumatic mitral disease"],
        evidence: &[
            "ms with a diastolic rumble , valve area reduced",
            "ms across the mitral leaflets had progressed",
        ],
        counter: &["ms was suspected from the rumble but the valve area was normal"],
    },
    Disease {
        code: "7140",
        forms: &["rheumatoid arthritis", "rheumatoid disease"],
        evidence: &["ra of the hands was active and methotrexate continued"],
        counter: &["ra factor was sent for the hands and came back negative"],
    },
    Disease {
        code: "41519",
        forms: &["pulmonary embolism", "lung clot"],
        evidence: &["pe in the right lower lobe , heparin drip started"],
        counter: &["pe protocol scan of the right lower lobe was clean , heparin drip stopped"],
    },
    plain("41091", &["myocardial infarction", "mi", "heart attack", "nstemi"]),
    plain("34590", &["epilepsy", "seizure disorder", "recurrent seizures"]),
    plain("49390", &["asthma", "reactive airways"]),
    plain("43491", &["stroke", "cva", "cerebral infarct"]),
    plain("45340", &["deep vein thrombosis", "dvt", "leg clot"]),
];

/// Problems without a code.
pub(super) const SYMPTOMS: &[&[&str]] = &[
    &["chest pain", "cp", "chest pressure"],
    &["shortness of breath", "sob", "dyspnea", "trouble breathing"],
    &["nausea", "n/v", "queasiness"],
    &["fever", "high temperature", "febrile episodes"],
    &["abdominal pain", "abd pain", "belly pain"],
    &["leg swelling", "edema", "le edema"],
    &["headache", "ha", "head pain"],
    &["dizziness", "lightheadedness", "vertigo"],
    &["back pain", "lbp", "sciatica"],
    &["rash", "skin rash", "hives"],
    &["wound drainage", "wound discharge", "purulent discharge"],
    &["a fall", "mechanical fall"],
    &["the cold", "a cold", "uri"],
    &["confusion", "ams", "altered mental status"],
    &["heart block", "av block"],
    &["septic shock", "shock"],
    &["lung mass", "a mass", "mass"],
    &["bleeding", "gi bleed", "bloody stool"],
    &["depression", "low mood"],
    &["low potassium", "hypokalemia"],
];

/// Tests.
pub(super) const TESTS: &[&[&str]] = &[
    &["chest x-ray", "cxr", "chest film"],
    &["ct scan", "ct", "head ct"],
    &["mri", "brain mri", "mr imaging"],
    &["echocardiogram", "echo", "tte"],
    &["electrocardiogram", "ekg", "ecg"],
    &["complete blood count", "cbc", "blood count"],
    &["urinalysis", "ua", "urine screen"],
    &["lumbar puncture", "lp", "spinal tap"],
    &["blood culture", "cultures", "culture"],
    &["stool studies", "stool culture"],
    &["colonoscopy", "lower scope"],
    &["lung biopsy", "biopsy", "bx"],
    &["leg ultrasound", "doppler", "us"],
    &["troponin", "cardiac enzymes", "trop"],
    &["creatinine", "cr", "renal panel"],
    &["white count", "wbc"],
    &["blood gas", "abg"],
    &["stress test", "ett", "treadmill test"],
    &["blood pressure", "bp", "pressure"],
    &["oxygen saturation", "o2 sat", "sats"],
    &["physical exam", "pe", "exam"],
    &["prothrombin time", "pt", "inr"],
    &["mental status exam", "ms exam"],
    &["bleeding time", "clotting time"],
];

/// Treatments.
pub(super) const TREATMENTS: &[&[&str]] = &[
    &["metoprolol", "lopressor", "beta blockade"],
    &["furosemide", "lasix", "diuresis"],
    &["aspirin", "asa"],
    &["warfarin", "coumadin", "anticoagulation"],
    &["lisinopril", "zestril"],
    &["antibiotics", "abx", "antibiotic coverage"],
    &["ceftriaxone", "rocephin"],
    &["prednisone", "steroids", "steroid taper"],
    &["hemodialysis", "hd", "dialysis"],
    &["intubation", "breathing tube"],
    &["blood transfusion", "prbc", "transfusion"],
    &["physical therapy", "pt", "rehab"],
    &["appendectomy", "appendix removal"],
    &["coronary bypass", "cabg", "bypass"],
    &["stent placement", "stent", "stenting"],
    &["albuterol", "nebs", "inhaler"],
    &["oxygen", "o2", "nasal oxygen"],
    &["morphine sulfate", "ms", "morphine"],
    &["nerve block", "block"],
    &["abscess drainage", "drainage", "i and d"],
    &["cold packs", "cold compress"],
    &["central line", "picc line", "line"],
    &["nicotine patch", "patch"],
    &["bowel rest", "npo"],
];

/// Things that are measured in one section, given in another and eaten in a third.
pub(super) const SWING: &[&str] = &[
    "potassium",
    "glucose",
    "iron",
    "insulin",
    "calcium",
    "magnesium",
    "digoxin",
    "vancomycin",
    "lithium",
    "folate",
    "albumin",
    "cortisol",
    "phosphate",
    "bicarbonate",
    "heparin",
    "zinc",
    "thiamine",
    "tacrolimus",
];

/// Family names: of people, of syndromes, of signs and of operations.
pub(super) const NAMES: &[&str] = &[
    "brannock",
    "ostrander",
    "velasco",
    "hadley",
    "quillen",
    "marchetti",
    "sorensen",
    "takeda",
    "abara",
    "whitlock",
    "dufresne",
    "kowalski",
    "nakamura",
    "pellegrin",
    "rourke",
    "szabo",
];

/// What a family name becomes with the noun behind it: problem, test, treatment.
pub(super) const EPONYMS: [&[&str]; 3] = [
    &["syndrome", "disease", "palsy", "lesion"],
    &["maneuver", "score", "assay", "scan"],
    &["procedure", "repair", "graft", "regimen"],
];

/// Syllables of rare drugs; the endings are those of real drug classes.
pub(super) const SYLLABLES: [&[&str]; 3] = [
    &["zol", "vari", "tera", "mox", "quin", "ebro", "lura", "pexi", "dano", "siro", "ful", "gan"],
    &["ta", "vi", "lo", "ne", "xu", "ri", "fa", "do"],
    &["mab", "pril", "olol", "statin", "cillin", "zide", "sartan", "tinib", "azole", "setron"],
];

/// Stems of rare findings, for words like `tracholysis`.
pub(super) const STEMS: &[&str] = &[
    "trach", "myel", "phleb", "oste", "neph", "chondr", "aden", "blephar", "gloss", "enter",
    "hepat", "lymph",
];

/// Endings of rare problems, tests and treatments.
pub(super) const ENDINGS: [&[&str]; 3] = [
    &["itis", "algia", "oma", "opathy", "olysis"],
    &["ography", "oscopy", "ometry"],
    &["ectomy", "oplasty", "ostomy"],
];

/// Qualifiers that belong to a problem, a test or a treatment when they stand before one.
pub(super) const QUALIFIERS: [&[&str]; 3] = [
    &["acute", "severe", "mild", "chronic", "new", "worsening", "recurrent", "old"],
    &["repeat", "serial", "initial", "follow-up", "outside", "new", "old"],
    &["high dose", "low dose", "home", "new", "repeat", "daily", "chronic"],
];
