//! Images as rows of a table, from every kind of source.
#![expect(clippy::unwrap_used, reason = "the functions that serve tests are tests too")]

use std::fs;
use std::path::{Path, PathBuf};

use fedra_data::{
    Body, Columns, DataError, EncodeRows as _, Format, Image, ImageEncoder, Labels, Missing,
    Partition, Processor, Reader, RowHashes, Shares, Split, Table, TableBuilder, Task, TextFile,
    TextFormat, TextRow, TextSink, WordsAre, Work, image_columns,
};

/// A grey PNG of one shade.
fn png(shade: u8, (width, height): (u32, u32)) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Grayscale);
    let pixels = vec![shade; (width * height) as usize];
    encoder.write_header().unwrap().write_image_data(&pixels).unwrap();
    bytes
}

fn write(folder: &Path, path: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, bytes).unwrap();
    path
}

fn read(format: Format, path: &Path, reader: &Reader) -> Result<Table, DataError> {
    let mut builder = TableBuilder::new(Task::Classes);
    reader.read(format, path, &mut builder)?;
    Ok(builder.finish())
}

fn with_column() -> Reader {
    let image = Some("image".to_owned());
    Reader { columns: Columns { image, ..Columns::default() }, ..Reader::default() }
}

fn images(table: &Table) -> Vec<&Image> {
    fn image(body: &Body) -> &Image {
        match body {
            Body::Image(image) => image,
            Body::Text(_) | Body::Pair(..) | Body::Words(_) | Body::Conversation(_) => {
                panic!("an image")
            }
        }
    }
    table.examples.iter().map(|example| image(&example.body)).collect()
}

/// The shade of each image.
fn shades(table: &Table) -> Vec<u8> {
    let processor =
        Processor::from_json(Path::new("p"), r#"{"do_resize": false, "do_normalize": false}"#, 1);
    let processor = processor.unwrap();
    let encoder = ImageEncoder::new(&processor, [1, 3, 4], 5);
    let shade = |example| {
        let encoded = encoder.encode(example).unwrap().remove(0);
        assert_eq!(encoded.ids, [0; 5]);
        encoded.pixels.unwrap().bytes()[0]
    };
    table.examples.iter().map(shade).collect()
}

const SIZE: (u32, u32) = (4, 3);

#[test]
fn a_folder_of_classes_is_read_in_order_on_any_number_of_threads() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..60_u8 {
        let class = if number % 2 == 0 { "even" } else { "odd" };
        write(folder.path(), &format!("{class}/{number:02}.png"), &png(number, SIZE));
    }
    write(folder.path(), "notes.txt", b"not an image");
    let table = read(Format::Images, folder.path(), &Reader::default()).unwrap();
    assert_eq!(table.labels.names(), ["even", "odd"]);
    assert_eq!(table.examples.len(), 60);
    assert_eq!(shades(&table)[..3], [0, 2, 4]);
    assert_eq!(table.examples[30].labels, Labels::One(1));
    assert!(table.examples[0].place.to_string().ends_with("even/00.png"));
    for threads in [1, 3] {
        let mut builder = TableBuilder::new(Task::Classes);
        let work = Work::on(Some(threads), &|_| true);
        let source = (Format::Images, folder.path());
        Reader::default().read_with(&work, source, &mut builder).unwrap();
        assert_eq!(builder.finish(), table);
    }
    // An image's hashes are its own, and follow its bytes.
    let hashes = RowHashes::new(&table, 1);
    assert_ne!(hashes.of("p", &[0])[0], hashes.of("p", &[1])[0]);
    let division = Partition::Dirichlet { clients: 3, alpha: 0.5 };
    let division = division.divide(&table, Shares::default(), 1).unwrap();
    assert_eq!(
        division.clients.iter().map(fedra_data::Holding::len).sum::<usize>()
            + division.central_test.len(),
        60
    );
}

#[test]
fn clients_and_splits_of_a_folder_are_those_of_its_rows() {
    let folder = tempfile::tempdir().unwrap();
    for (path, shade) in [("train/north/a/1.png", 1), ("test/south/b/1.png", 2)] {
        write(folder.path(), path, &png(shade, SIZE));
    }
    let table = read(Format::Images, folder.path(), &Reader::default()).unwrap();
    let found: Vec<_> = table.examples.iter().map(|it| (it.client.as_deref(), it.split)).collect();
    assert_eq!(found, [(Some("south"), Some(Split::Test)), (Some("north"), Some(Split::Train))]);
}

#[test]
fn broken_images_are_refused_with_their_place_or_left_out() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "a/1.png", &png(1, SIZE));
    let whole = png(2, SIZE);
    let cut = write(folder.path(), "b/2.png", &whole[..whole.len() - 30]);
    let late = write(folder.path(), "b/3.png", &png(3, SIZE));
    // The header is whole, so it is found when it is decoded.
    let table = read(Format::Images, folder.path(), &Reader::default()).unwrap();
    let processor = Processor::usual((3, 4), 1);
    let encoder = ImageEncoder::new(&processor, [1, 3, 4], 5);
    let error = encoder.encode(&table.examples[1]).unwrap_err().to_string();
    assert!(error.starts_with(&format!("{}: found a broken PNG", cut.display())), "{error}");
    let drop = Reader { missing: Missing::Drop, ..Reader::default() };
    let kept = read(Format::Images, folder.path(), &drop).unwrap();
    assert_eq!((kept.examples.len(), kept.reading.left_out.rows), (2, 1));
    fs::write(&cut, "no image").unwrap();
    let error = read(Format::Images, folder.path(), &Reader::default()).unwrap_err().to_string();
    assert!(
        error.contains("2.png: found other bytes, expected a PNG or JPEG image: 1 of 3"),
        "{error}"
    );
    assert!(error.contains("lacks an image or a label"), "{error}");
    // A file that changes after it was read is no longer the row that was placed.
    fs::write(&cut, &whole).unwrap();
    let table = read(Format::Images, folder.path(), &Reader::default()).unwrap();
    fs::write(&late, png(9, SIZE)).unwrap();
    let error = encoder.encode(&table.examples[2]).unwrap_err().to_string();
    assert!(error.contains("another image than when the rows were read"), "{error}");
    fs::write(&late, png(9, (1 << 13, 1))).unwrap();
    let other = read(Format::Images, folder.path(), &Reader::default()).unwrap();
    let plain = Processor::from_json(Path::new("p"), r#"{"do_resize": false}"#, 1).unwrap();
    let encoder = ImageEncoder::new(&plain, [1, 3, 4], 5);
    let error = encoder.encode(&other.examples[2]).unwrap_err().to_string();
    assert!(error.contains("found 1 x 1 x 8192"), "{error}");
}

#[test]
fn a_column_of_paths_is_read_from_tables() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "in/1.png", &png(1, SIZE));
    write(folder.path(), "in/2.png", &png(2, SIZE));
    let csv = write(folder.path(), "t.csv", b"image,label,client\nin/1.png,a,n\nin/2.png,b,s\n");
    let table = read(Format::Csv, &csv, &with_column()).unwrap();
    assert_eq!((shades(&table), table.labels.names().len()), (vec![1, 2], 2));
    assert_eq!(table.examples[1].client.as_deref(), Some("s"));
    let json =
        b"{\"image\": \"in/1.png\", \"label\": \"a\"}\n{\"image\": \"\", \"label\": \"b\"}\n";
    let json = write(folder.path(), "t.jsonl", json);
    let error = read(Format::JsonLines, &json, &with_column()).unwrap_err().to_string();
    assert!(error.contains("t.jsonl:2: found no value, expected column \"image\""), "{error}");
    let drop = Reader { missing: Missing::Drop, ..with_column() };
    assert_eq!(read(Format::JsonLines, &json, &drop).unwrap().examples.len(), 1);
    for path in ["../t.png", "/etc/passwd"] {
        let csv = write(folder.path(), "out.csv", format!("image,label\n{path},a\n").as_bytes());
        // Such a table is refused whatever becomes of rows without images.
        let error = read(Format::Csv, &csv, &drop).unwrap_err().to_string();
        assert!(error.contains("expected a path inside the folder of the table"), "{error}");
    }
    let csv = write(folder.path(), "gone.csv", b"image,label\nin/1.png,a\nin/7.png,b\n");
    let error = read(Format::Csv, &csv, &with_column()).unwrap_err().to_string();
    assert!(
        error.contains("gone.csv:3: found \"in/7.png\", a file that cannot be read"),
        "{error}"
    );
}

#[derive(Default)]
struct Sink(Vec<TextRow>, Vec<String>);

impl TextSink for Sink {
    type Error = DataError;

    fn columns(&mut self, names: &[String]) -> Result<(), DataError> {
        self.1 = names.to_vec();
        Ok(())
    }

    fn row(&mut self, row: TextRow) -> Result<(), DataError> {
        self.0.push(row);
        Ok(())
    }

    fn bad_row(&mut self, error: DataError) -> Result<(), DataError> {
        Err(error)
    }
}

#[test]
fn parquet_in_the_layout_of_hugging_face_datasets_is_read_and_not_copied() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/images.parquet");
    assert_eq!(image_columns(&path).unwrap(), ["image", "plain"]);
    let table = read(Format::Parquet, &path, &with_column()).unwrap();
    assert_eq!(shades(&table), [10, 20, 30]);
    assert_eq!(table.labels.names(), ["0", "1"]);
    let plain = Columns { image: Some("plain".to_owned()), ..Columns::default() };
    let plain = Reader { columns: plain, ..Reader::default() };
    assert_eq!(images(&read(Format::Parquet, &path, &plain).unwrap()), images(&table));
    let file = TextFile {
        path,
        format: TextFormat::Parquet,
        columns: None,
        image: Some("image".to_owned()),
        words: WordsAre::Joined,
        encoding: fedra_data::Encoding::Utf8,
        delimiter: None,
        anywhere: false,
        column_hint: "",
    };
    for column in ["image", "plain"] {
        let mut sink = Sink::default();
        let file = TextFile { image: Some(column.to_owned()), ..file.clone() };
        file.read(None, &mut sink).unwrap();
        assert_eq!(sink.1, ["label"]);
        let bodies: Vec<&Body> = sink.0.iter().map(|row| &row.body).collect();
        let expected: Vec<&Body> = table.examples.iter().map(|example| &example.body).collect();
        assert_eq!(bodies, expected);
        assert!(!format!("{:?}", sink.0).contains("137, 80"), "no byte of a PNG file");
    }
}

#[test]
fn idx_files_are_read_whole_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let header = |kind: u8, sizes: &[u32]| {
        let mut bytes = vec![0, 0, 8, kind];
        for size in sizes {
            bytes.extend(size.to_be_bytes());
        }
        bytes
    };
    let images = [header(3, &[3, 3, 4]), (0..36).collect()].concat();
    let labels = [header(1, &[3]), vec![7, 0, 7]].concat();
    write(folder.path(), "train-images-idx3-ubyte", &images);
    write(folder.path(), "train-labels-idx1-ubyte", &labels);
    write(folder.path(), "t10k-images.idx3-ubyte", &images);
    write(folder.path(), "t10k-labels.idx1-ubyte", &labels);
    let table = read(Format::Idx, folder.path(), &Reader::default()).unwrap();
    assert_eq!(
        (table.labels.names(), shades(&table)),
        (&["0", "7"].map(String::from)[..], vec![0, 12, 24, 0, 12, 24])
    );
    assert_eq!(table.examples[2].place.to_string().rsplit(':').next(), Some("3"));
    assert_eq!(
        (table.examples[0].split, table.examples[3].split),
        (Some(Split::Train), Some(Split::Test))
    );
    let file = folder.path().join("train-images-idx3-ubyte");
    assert_eq!(read(Format::Idx, &file, &Reader::default()).unwrap().examples.len(), 3);
    for (bytes, part) in [
        (images[..images.len() - 1].to_vec(), "fewer values"),
        ([&images[..], &[1]].concat(), "more values"),
        (header(3, &[2, 3, 4]), "2 images beside 3 labels"),
        (header(3, &[u32::MAX; 3]), "more than 8589934592 bytes"),
        (header(1, &[3]), "the first bytes [0, 0, 8, 1]"),
    ] {
        fs::write(&file, bytes).unwrap();
        let error = read(Format::Idx, &file, &Reader::default()).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    fs::remove_file(file).unwrap();
    let error = read(Format::Idx, folder.path(), &Reader::default()).unwrap_err().to_string();
    assert!(error.contains("no train-images"), "{error}");
}
