use fedra_compute::Pool;
use fedra_compute::cpu::matmul::*;
fn cpu() -> f64 { #[repr(C)] struct T(i64,i64); unsafe extern "C" { fn clock_gettime(c: i32, t: *mut T) -> i32; } let mut t=T(0,0); unsafe { clock_gettime(2,&mut t); } t.0 as f64 + t.1 as f64*1e-9 }
fn main() {
    let pool = Pool::new();
    let tp = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    tp.install(|| {
    for (m, n, k, ta, tb) in [(2048,1152,384,false,true),(2048,384,384,false,true),(2048,1536,384,false,true),(2048,384,1536,false,true),(2048,384,1536,false,false),(2048,1536,384,false,false),(1536,384,2048,true,false),(384,1536,2048,true,false),(384,384,2048,true,false),(2048,512,128,false,true),(512,128,2048,true,false),(16,384,384,false,true)] {
        let a: Vec<f32> = (0..m*k).map(|i| ((i*7919)%1000) as f32/1000.0-0.5).collect();
        let b: Vec<f32> = (0..n*k).map(|i| ((i*104729)%1000) as f32/1000.0-0.5).collect();
        let mut c = vec![0f32; m*n];
        let am = if ta { Mat::new(&a, k, m).t() } else { Mat::new(&a, m, k) };
        let bm = if tb { Mat::new(&b, n, k).t() } else { Mat::new(&b, k, n) };
        let mut ts = vec![]; let mut tps=vec![];
        for _ in 0..15 {
            let t = cpu();
            let r = Right::beside(&pool, &[bm]);
            tps.push(cpu()-t);
            multiply(MatMut::new(&mut c, m, n), am, &r, Start::Zero, Extras::default());
            ts.push(cpu()-t);
        }
        ts.sort_by(f64::total_cmp); tps.sort_by(f64::total_cmp);
        let mut err = 0f64;
        for (i,j) in [(0,0),(m-1,n-1),(m/2,n/3)] {
            let e: f64 = (0..k).map(|q| (am.data[i*am.row_stride+q*am.col_stride] as f64)*(bm.data[q*bm.row_stride+j*bm.col_stride] as f64)).sum();
            err = err.max((e - c[i*n+j] as f64).abs());
        }
        let fl = 2.0*(m*n*k) as f64;
        println!("{m}x{n}x{k} ta={ta} tb={tb}: median {:.1} best {:.1} GF/s, pack {:.1}% err {err:.1e}", fl/ts[7]/1e9, fl/ts[0]/1e9, 100.0*tps[7]/ts[7]);
    }});
}
