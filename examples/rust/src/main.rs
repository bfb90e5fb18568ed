//! Runs a classifier on rows of numbers: rlx-example MODEL "1 2 3 4" ...
//!
//! The model has an input of f32, [batch, n] or of a batch of one size, and an output of f32.

mod rlx;

use std::error::Error;
use std::process::ExitCode;

fn classify(path: &str, rows: &[Vec<f32>]) -> Result<Vec<f32>, rlx::Error> {
    let width = rows.first().map_or(0, Vec::len);
    let model = rlx::Model::load(path)?.bind(&[&[rows.len() as i64, width as i64]])?;
    model.run(&[rows.concat().as_slice().into()])
}

fn show(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let [path, texts @ ..] = arguments else {
        return Err("usage: rlx-example MODEL \"1 2 3 4\" ...".into());
    };
    let mut rows = Vec::new();
    for text in texts {
        rows.push(
            text.split_whitespace()
                .map(str::parse)
                .collect::<Result<Vec<f32>, _>>()?,
        );
    }
    let y = classify(path, &rows)?;
    for row in y.chunks((y.len() / rows.len().max(1)).max(1)) {
        let texts: Vec<String> = row.iter().map(|v| format!("{v:.4}")).collect();
        println!("{}", texts.join(" "));
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match show(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
