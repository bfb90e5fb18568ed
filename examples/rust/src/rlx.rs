//! RLX's C interface, rlx.h, for Rust: the declarations, and a model that owns itself.

use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::fmt;
use std::ptr;

#[repr(C)]
struct RawTensor {
    name: *const c_char,
    dtype: c_int,
    rank: usize,
    shape: *const i64,
    bytes: usize,
}

#[repr(C)]
struct Buffer {
    data: *mut c_void,
    bytes: usize,
}

#[repr(C)]
struct RawModel {
    _opaque: [u8; 0],
}

type Describe = unsafe extern "C" fn(*const RawModel, usize, *mut RawTensor) -> c_int;
type Count = unsafe extern "C" fn(*const RawModel) -> usize;

extern "C" {
    fn rlx_last_error() -> *const c_char;
    fn rlx_load(path: *const c_char, model: *mut *mut RawModel) -> c_int;
    fn rlx_free(model: *mut RawModel);
    fn rlx_num_inputs(model: *const RawModel) -> usize;
    fn rlx_num_outputs(model: *const RawModel) -> usize;
    fn rlx_input(model: *const RawModel, index: usize, tensor: *mut RawTensor) -> c_int;
    fn rlx_output(model: *const RawModel, index: usize, tensor: *mut RawTensor) -> c_int;
    fn rlx_bind(
        model: *const RawModel,
        shapes: *const *const i64,
        bound: *mut *mut RawModel,
    ) -> c_int;
    fn rlx_run(model: *mut RawModel, inputs: *const Buffer, outputs: *const Buffer) -> c_int;
}

/// What a call that failed says.
#[derive(Debug)]
pub struct Error(String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

fn check(status: c_int) -> Result<(), Error> {
    if status == 0 {
        return Ok(());
    }
    // The message is this thread's, and valid until its next call.
    Err(Error(
        unsafe { CStr::from_ptr(rlx_last_error()) }
            .to_string_lossy()
            .into_owned(),
    ))
}

/// A type of elements, with its number in rlx.h. Memory of a model is lent as these types only.
pub trait Element: Copy + Default {
    const DTYPE: i32;
}

macro_rules! elements {
    ($($type:ty = $number:literal),*) => {
        $(impl Element for $type { const DTYPE: i32 = $number; })*
    };
}

elements!(
    f32 = 2,
    f64 = 3,
    i8 = 4,
    i16 = 5,
    i32 = 6,
    i64 = 7,
    u8 = 8,
    u16 = 9,
    u32 = 10,
    u64 = 11
);

/// What an input or an output is. A dim is -1 where it has no size yet.
#[derive(Debug)]
pub struct Tensor {
    pub name: String,
    pub dtype: i32,
    pub shape: Vec<i64>,
    pub bytes: usize,
}

/// Elements of an input.
pub struct Input<'a> {
    buffer: Buffer,
    dtype: i32,
    _elements: std::marker::PhantomData<&'a ()>,
}

impl<'a, T: Element> From<&'a [T]> for Input<'a> {
    fn from(elements: &'a [T]) -> Self {
        let data = elements.as_ptr() as *mut c_void; // which is only read
        let buffer = Buffer {
            data,
            bytes: std::mem::size_of_val(elements),
        };
        Input {
            buffer,
            dtype: T::DTYPE,
            _elements: std::marker::PhantomData,
        }
    }
}

/// An artifact that is loaded.
pub struct Model(*mut RawModel);

// rlx.h: a model may be used from any number of threads at once.
unsafe impl Send for Model {}
unsafe impl Sync for Model {}

impl Drop for Model {
    fn drop(&mut self) {
        unsafe { rlx_free(self.0) }
    }
}

impl Model {
    /// Load the artifact in a file.
    pub fn load(path: &str) -> Result<Model, Error> {
        let path = CString::new(path).map_err(|e| Error(format!("{path:?}: {e}")))?;
        let mut model = ptr::null_mut();
        check(unsafe { rlx_load(path.as_ptr(), &mut model) })?;
        Ok(Model(model))
    }

    pub fn inputs(&self) -> Result<Vec<Tensor>, Error> {
        self.listed(rlx_num_inputs, rlx_input)
    }

    pub fn outputs(&self) -> Result<Vec<Tensor>, Error> {
        self.listed(rlx_num_outputs, rlx_output)
    }

    /// A model for inputs of given shapes, which shares code and params with this one.
    pub fn bind(&self, shapes: &[&[i64]]) -> Result<Model, Error> {
        let wanted = self.inputs()?;
        let ranks = wanted.iter().map(|t| t.shape.len());
        if !ranks.eq(shapes.iter().map(|s| s.len())) {
            return Err(Error(format!(
                "shapes {shapes:?} do not fit the inputs {wanted:?}"
            )));
        }
        let rows: Vec<*const i64> = shapes.iter().map(|s| s.as_ptr()).collect();
        let mut bound = ptr::null_mut();
        check(unsafe { rlx_bind(self.0, rows.as_ptr(), &mut bound) })?;
        Ok(Model(bound))
    }

    /// Run a model of one output, whose elements are of the type T.
    pub fn run<T: Element>(&self, inputs: &[Input]) -> Result<Vec<T>, Error> {
        let outputs = self.outputs()?;
        let given: Vec<i32> = inputs.iter().map(|i| i.dtype).collect();
        let wanted: Vec<i32> = self.inputs()?.iter().map(|t| t.dtype).collect();
        if given != wanted {
            return Err(Error(format!(
                "inputs: found the types {given:?}, expected {wanted:?}"
            )));
        }
        let taken: Vec<(&str, i32)> = outputs.iter().map(|t| (&*t.name, t.dtype)).collect();
        if taken.len() != 1 || taken[0].1 != T::DTYPE {
            let wanted = T::DTYPE;
            return Err(Error(format!(
                "outputs: found {taken:?}, expected one of type {wanted}"
            )));
        }
        let mut result = vec![T::default(); outputs[0].bytes / std::mem::size_of::<T>()];
        let buffers: Vec<Buffer> = inputs
            .iter()
            .map(|i| Buffer {
                data: i.buffer.data,
                bytes: i.buffer.bytes,
            })
            .collect();
        let output = Buffer {
            data: result.as_mut_ptr().cast(),
            bytes: outputs[0].bytes,
        };
        check(unsafe { rlx_run(self.0, buffers.as_ptr(), &output) })?;
        Ok(result)
    }

    fn listed(&self, count: Count, describe: Describe) -> Result<Vec<Tensor>, Error> {
        let mut found = Vec::new();
        for index in 0..unsafe { count(self.0) } {
            let mut raw = RawTensor {
                name: ptr::null(),
                dtype: 0,
                rank: 0,
                shape: ptr::null(),
                bytes: 0,
            };
            check(unsafe { describe(self.0, index, &mut raw) })?;
            let shape = match raw.rank {
                0 => Vec::new(),
                rank => unsafe { std::slice::from_raw_parts(raw.shape, rank) }.to_vec(),
            };
            let name = unsafe { CStr::from_ptr(raw.name) }
                .to_string_lossy()
                .into_owned();
            found.push(Tensor {
                name,
                dtype: raw.dtype,
                shape,
                bytes: raw.bytes,
            });
        }
        Ok(found)
    }
}
