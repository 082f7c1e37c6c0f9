# Draws tflops-bf16.svg from tflops-bf16.dat. Change what you like and run in this folder: gnuplot tflops-bf16.gp
set terminal svg size 1074,1454 dynamic background rgb 'white' noenhanced font 'Arial,13'
set output 'tflops-bf16.svg'
set encoding utf8
set datafile separator ','
set border 3 lc rgb '#555555'
set tics out nomirror scale 0.6
set grid ytics lc rgb '#DDDDDD' lt 1 lw 1
set bars 0.6
unset key
set xlabel offset 0,0.4
set logscale x 2
set xrange [819.2:20480]
set xtics ('1K' 1024, '2K' 2048, '4K' 4096, '8K' 8192, '16K' 16384)
set yrange [0:*]
set multiplot

set lmargin at screen 0.0931
set rmargin at screen 0.5028
set tmargin at screen 0.9078
set bmargin at screen 0.7359
set title 'fwd full d=64' offset 0,-0.5
set xlabel ''
set ylabel 'TFLOPS'
plot 'tflops-bf16.dat' index 0 using 1:2:3:4 with yerrorlines lc rgb '#009E73' pt 13 ps 0.8 dt 1 lw 2 title 'naive', \
     'tflops-bf16.dat' index 1 using 1:2:3:4 with yerrorlines lc rgb '#E69F00' pt 5 ps 0.8 dt 1 lw 2 title 'cudnn', \
     'tflops-bf16.dat' index 2 using 1:2:3:4 with yerrorlines lc rgb '#0072B2' pt 7 ps 0.8 dt 1 lw 2 title 'fused_sm90', \
     'tflops-bf16.dat' index 3 using 1:2 with lines lc rgb '#000000' dt 2 lw 1.5 title ''

set lmargin at screen 0.5698
set rmargin at screen 0.9795
set tmargin at screen 0.9078
set bmargin at screen 0.7359
set title 'fwd causal d=64' offset 0,-0.5
set xlabel ''
set ylabel ''
plot 'tflops-bf16.dat' index 4 using 1:2:3:4 with yerrorlines lc rgb '#009E73' pt 13 ps 0.8 dt 1 lw 2 title 'naive', \
     'tflops-bf16.dat' index 5 using 1:2:3:4 with yerrorlines lc rgb '#E69F00' pt 5 ps 0.8 dt 1 lw 2 title 'cudnn', \
     'tflops-bf16.dat' index 6 using 1:2:3:4 with yerrorlines lc rgb '#0072B2' pt 7 ps 0.8 dt 1 lw 2 title 'fused_sm90', \
     'tflops-bf16.dat' index 7 using 1:2 with lines lc rgb '#000000' dt 2 lw 1.5 title ''

set lmargin at screen 0.0931
set rmargin at screen 0.5028
set tmargin at screen 0.6878
set bmargin at screen 0.5158
set title 'fwd full d=128' offset 0,-0.5
set xlabel ''
set ylabel 'TFLOPS'
plot 'tflops-bf16.dat' index 8 using 1:2:3:4 with yerrorlines lc rgb '#009E73' pt 13 ps 0.8 dt 1 lw 2 title 'naive', \
     'tflops-bf16.dat' index 9 using 1:2:3:4 with yerrorlines lc rgb '#E69F00' pt 5 ps 0.8 dt 1 lw 2 title 'cudnn', \
     'tflops-bf16.dat' index 10 using 1:2:3:4 with yerrorlines lc rgb '#0072B2' pt 7 ps 0.8 dt 1 lw 2 title 'fused_sm90', \
     'tflops-bf16.dat' index 11 using 1:2 with lines lc rgb '#000000' dt 2 lw 1.5 title ''

set lmargin at screen 0.5698
set rmargin at screen 0.9795
set tmargin at screen 0.6878
set bmargin at screen 0.5158
set title 'fwd causal d=128' offset 0,-0.5
set xlabel ''
set ylabel ''
plot 'tflops-bf16.dat' index 12 using 1:2:3:4 with yerrorlines lc rgb '#009E73' pt 13 ps 0.8 dt 1 lw 2 title 'naive', \
     'tflops-bf16.dat' index 13 using 1:2:3:4 with yerrorlines lc rgb '#E69F00' pt 5 ps 0.8 dt 1 lw 2 title 'cudnn', \
     'tflops-bf16.dat' index 14 using 1:2:3:4 with yerrorlines lc rgb '#0072B2' pt 7 ps 0.8 dt 1 lw 2 title 'fused_sm90', \
     'tflops-bf16.dat' index 15 using 1:2 with lines lc rgb '#000000' dt 2 lw 1.5 title ''

set lmargin at screen 0.0931
set rmargin at screen 0.5028
set tmargin at screen 0.4677
set bmargin at screen 0.2957
set title 'bwd full d=64' offset 0,-0.5
set xlabel ''
set ylabel 'TFLOPS'
plot 'tflops-bf16.dat' index 16 using 1:2:3:4 with yerrorlines lc rgb '#009E73' pt 13 ps 0.8 dt 1 lw 2 title 'naive', \
     'tflops-bf16.dat' index 17 using 1:2:3:4 with yerrorlines lc rgb '#E69F00' pt 5 ps 0.8 dt 1 lw 2 title 'cudnn', \
     'tflops-bf16.dat' index 18 using 1:2:3:4 with yerrorlines lc rgb '#0072B2' pt 7 ps 0.8 dt 1 lw 2 title 'fused_sm90', \
     'tflops-bf16.dat' index 19 using 1:2 with lines lc rgb '#000000' dt 2 lw 1.5 title ''

set lmargin at screen 0.5698
set rmargin at screen 0.9795
set tmargin at screen 0.4677
set bmargin at screen 0.2957
set title 'bwd causal d=64' offset 0,-0.5
set xlabel ''
set ylabel ''
plot 'tflops-bf16.dat' index 20 using 1:2:3:4 with yerrorlines lc rgb '#009E73' pt 13 ps 0.8 dt 1 lw 2 title 'naive', \
     'tflops-bf16.dat' index 21 using 1:2:3:4 with yerrorlines lc rgb '#E69F00' pt 5 ps 0.8 dt 1 lw 2 title 'cudnn', \
     'tflops-bf16.dat' index 22 using 1:2:3:4 with yerrorlines lc rgb '#0072B2' pt 7 ps 0.8 dt 1 lw 2 title 'fused_sm90', \
     'tflops-bf16.dat' index 23 using 1:2 with lines lc rgb '#000000' dt 2 lw 1.5 title ''

set lmargin at screen 0.0931
set rmargin at screen 0.5028
set tmargin at screen 0.2476
set bmargin at screen 0.0757
set title 'bwd full d=128' offset 0,-0.5
set xlabel 'sequence length n'
set ylabel 'TFLOPS'
plot 'tflops-bf16.dat' index 24 using 1:2:3:4 with yerrorlines lc rgb '#009E73' pt 13 ps 0.8 dt 1 lw 2 title 'naive', \
     'tflops-bf16.dat' index 25 using 1:2:3:4 with yerrorlines lc rgb '#E69F00' pt 5 ps 0.8 dt 1 lw 2 title 'cudnn', \
     'tflops-bf16.dat' index 26 using 1:2:3:4 with yerrorlines lc rgb '#0072B2' pt 7 ps 0.8 dt 1 lw 2 title 'fused_sm90', \
     'tflops-bf16.dat' index 27 using 1:2 with lines lc rgb '#000000' dt 2 lw 1.5 title ''

set lmargin at screen 0.5698
set rmargin at screen 0.9795
set tmargin at screen 0.2476
set bmargin at screen 0.0757
set title 'bwd causal d=128' offset 0,-0.5
set xlabel 'sequence length n'
set ylabel ''
plot 'tflops-bf16.dat' index 28 using 1:2:3:4 with yerrorlines lc rgb '#009E73' pt 13 ps 0.8 dt 1 lw 2 title 'naive', \
     'tflops-bf16.dat' index 29 using 1:2:3:4 with yerrorlines lc rgb '#E69F00' pt 5 ps 0.8 dt 1 lw 2 title 'cudnn', \
     'tflops-bf16.dat' index 30 using 1:2:3:4 with yerrorlines lc rgb '#0072B2' pt 7 ps 0.8 dt 1 lw 2 title 'fused_sm90', \
     'tflops-bf16.dat' index 31 using 1:2 with lines lc rgb '#000000' dt 2 lw 1.5 title ''

unset logscale
unset tics
unset border
unset grid
unset title
unset xlabel
unset ylabel
set lmargin at screen 0
set rmargin at screen 1
set tmargin at screen 1
set bmargin at screen 0
set xrange [0:1]
set yrange [0:1]
set label 1 'Attention speed, bf16' at screen 0.0931,0.9807 left font ',19'
set label 2 'NVIDIA H200, driver 580.159.04, commit 07b67df17fd1' at screen 0.0931,0.9629 left font ',12' tc rgb '#555555'
set label 3 'bf16, 16384 tokens (batch = tokens / n), heads x d = 2048, bshd, L2 cold, inputs N(0,1)' at screen 0.0931,0.9491 left font ',12' tc rgb '#555555'
set label 4 'FLOPs: forward 4 d per visible pair and head, backward 2.5 x that. Bars: 95 % interval of the median. GEMM: cuBLAS 8192^3 in the same rounds.' at screen 0.0931,0.9354 left font ',12' tc rgb '#555555'
set key at screen 0.5,0.0041 center bottom horizontal Left reverse samplen 3 width 0 font ',13'
plot NaN with linespoints lc rgb '#0072B2' pt 7 ps 0.8 dt 1 lw 2 title 'fused_sm90', \
     NaN with linespoints lc rgb '#E69F00' pt 5 ps 0.8 dt 1 lw 2 title 'cudnn', \
     NaN with linespoints lc rgb '#009E73' pt 13 ps 0.8 dt 1 lw 2 title 'naive', \
     NaN with lines lc rgb '#000000' dt 2 lw 1.5 title 'GEMM ceiling'
unset multiplot
unset output
