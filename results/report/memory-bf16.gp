# Draws memory-bf16.svg from memory-bf16.dat. Change what you like and run in this folder: gnuplot memory-bf16.gp
set terminal svg size 1074,1538 dynamic background rgb 'white' noenhanced font 'Arial,13'
set output 'memory-bf16.svg'
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
set logscale y
set yrange [0.0001:100000]
set format y '%g'
set multiplot

set lmargin at screen 0.0931
set rmargin at screen 0.5028
set tmargin at screen 0.8869
set bmargin at screen 0.7243
set title 'fwd full d=64' offset 0,-0.5
set xlabel ''
set ylabel 'workspace, MB'
plot 'memory-bf16.dat' index 0 using 1:2 with linespoints lc rgb '#009E73' pt 9 ps 0.8 dt 3 lw 2 title 'H200 acceptance, naive', \
     'memory-bf16.dat' index 1 using 1:2 with linespoints lc rgb '#D55E00' pt 5 ps 0.8 dt 3 lw 2 title 'H200 paper, naive', \
     'memory-bf16.dat' index 2 using 1:2 with linespoints lc rgb '#0072B2' pt 7 ps 0.8 dt 3 lw 2 title 'H100-80GB-HBM3 paper, naive', \
     'memory-bf16.dat' index 3 using 1:2 with linespoints lc rgb '#009E73' pt 9 ps 0.8 dt 1 lw 2 title 'H200 acceptance', \
     'memory-bf16.dat' index 4 using 1:2 with linespoints lc rgb '#D55E00' pt 5 ps 0.8 dt 1 lw 2 title 'H200 paper', \
     'memory-bf16.dat' index 5 using 1:2 with linespoints lc rgb '#0072B2' pt 7 ps 0.8 dt 1 lw 2 title 'H100-80GB-HBM3 paper'

set lmargin at screen 0.5698
set rmargin at screen 0.9795
set tmargin at screen 0.8869
set bmargin at screen 0.7243
set title 'fwd causal d=64' offset 0,-0.5
set xlabel ''
set ylabel ''
plot 'memory-bf16.dat' index 6 using 1:2 with linespoints lc rgb '#009E73' pt 9 ps 0.8 dt 3 lw 2 title 'H200 acceptance, naive', \
     'memory-bf16.dat' index 7 using 1:2 with linespoints lc rgb '#D55E00' pt 5 ps 0.8 dt 3 lw 2 title 'H200 paper, naive', \
     'memory-bf16.dat' index 8 using 1:2 with linespoints lc rgb '#0072B2' pt 7 ps 0.8 dt 3 lw 2 title 'H100-80GB-HBM3 paper, naive', \
     'memory-bf16.dat' index 9 using 1:2 with linespoints lc rgb '#009E73' pt 9 ps 0.8 dt 1 lw 2 title 'H200 acceptance', \
     'memory-bf16.dat' index 10 using 1:2 with linespoints lc rgb '#D55E00' pt 5 ps 0.8 dt 1 lw 2 title 'H200 paper', \
     'memory-bf16.dat' index 11 using 1:2 with linespoints lc rgb '#0072B2' pt 7 ps 0.8 dt 1 lw 2 title 'H100-80GB-HBM3 paper'

set lmargin at screen 0.0931
set rmargin at screen 0.5028
set tmargin at screen 0.6788
set bmargin at screen 0.5163
set title 'fwd full d=128' offset 0,-0.5
set xlabel ''
set ylabel 'workspace, MB'
plot 'memory-bf16.dat' index 12 using 1:2 with linespoints lc rgb '#009E73' pt 9 ps 0.8 dt 3 lw 2 title 'H200 acceptance, naive', \
     'memory-bf16.dat' index 13 using 1:2 with linespoints lc rgb '#D55E00' pt 5 ps 0.8 dt 3 lw 2 title 'H200 paper, naive', \
     'memory-bf16.dat' index 14 using 1:2 with linespoints lc rgb '#0072B2' pt 7 ps 0.8 dt 3 lw 2 title 'H100-80GB-HBM3 paper, naive', \
     'memory-bf16.dat' index 15 using 1:2 with linespoints lc rgb '#009E73' pt 9 ps 0.8 dt 1 lw 2 title 'H200 acceptance', \
     'memory-bf16.dat' index 16 using 1:2 with linespoints lc rgb '#D55E00' pt 5 ps 0.8 dt 1 lw 2 title 'H200 paper', \
     'memory-bf16.dat' index 17 using 1:2 with linespoints lc rgb '#0072B2' pt 7 ps 0.8 dt 1 lw 2 title 'H100-80GB-HBM3 paper'

set lmargin at screen 0.5698
set rmargin at screen 0.9795
set tmargin at screen 0.6788
set bmargin at screen 0.5163
set title 'fwd causal d=128' offset 0,-0.5
set xlabel ''
set ylabel ''
plot 'memory-bf16.dat' index 18 using 1:2 with linespoints lc rgb '#009E73' pt 9 ps 0.8 dt 3 lw 2 title 'H200 acceptance, naive', \
     'memory-bf16.dat' index 19 using 1:2 with linespoints lc rgb '#D55E00' pt 5 ps 0.8 dt 3 lw 2 title 'H200 paper, naive', \
     'memory-bf16.dat' index 20 using 1:2 with linespoints lc rgb '#0072B2' pt 7 ps 0.8 dt 3 lw 2 title 'H100-80GB-HBM3 paper, naive', \
     'memory-bf16.dat' index 21 using 1:2 with linespoints lc rgb '#009E73' pt 9 ps 0.8 dt 1 lw 2 title 'H200 acceptance', \
     'memory-bf16.dat' index 22 using 1:2 with linespoints lc rgb '#D55E00' pt 5 ps 0.8 dt 1 lw 2 title 'H200 paper', \
     'memory-bf16.dat' index 23 using 1:2 with linespoints lc rgb '#0072B2' pt 7 ps 0.8 dt 1 lw 2 title 'H100-80GB-HBM3 paper'

set lmargin at screen 0.0931
set rmargin at screen 0.5028
set tmargin at screen 0.4707
set bmargin at screen 0.3082
set title 'bwd full d=64' offset 0,-0.5
set xlabel ''
set ylabel 'workspace, MB'
plot 'memory-bf16.dat' index 24 using 1:2 with linespoints lc rgb '#009E73' pt 9 ps 0.8 dt 3 lw 2 title 'H200 acceptance, naive', \
     'memory-bf16.dat' index 25 using 1:2 with linespoints lc rgb '#D55E00' pt 5 ps 0.8 dt 3 lw 2 title 'H200 paper, naive', \
     'memory-bf16.dat' index 26 using 1:2 with linespoints lc rgb '#0072B2' pt 7 ps 0.8 dt 3 lw 2 title 'H100-80GB-HBM3 paper, naive', \
     'memory-bf16.dat' index 27 using 1:2 with linespoints lc rgb '#009E73' pt 9 ps 0.8 dt 1 lw 2 title 'H200 acceptance', \
     'memory-bf16.dat' index 28 using 1:2 with linespoints lc rgb '#D55E00' pt 5 ps 0.8 dt 1 lw 2 title 'H200 paper', \
     'memory-bf16.dat' index 29 using 1:2 with linespoints lc rgb '#0072B2' pt 7 ps 0.8 dt 1 lw 2 title 'H100-80GB-HBM3 paper'

set lmargin at screen 0.5698
set rmargin at screen 0.9795
set tmargin at screen 0.4707
set bmargin at screen 0.3082
set title 'bwd causal d=64' offset 0,-0.5
set xlabel ''
set ylabel ''
plot 'memory-bf16.dat' index 30 using 1:2 with linespoints lc rgb '#009E73' pt 9 ps 0.8 dt 3 lw 2 title 'H200 acceptance, naive', \
     'memory-bf16.dat' index 31 using 1:2 with linespoints lc rgb '#D55E00' pt 5 ps 0.8 dt 3 lw 2 title 'H200 paper, naive', \
     'memory-bf16.dat' index 32 using 1:2 with linespoints lc rgb '#0072B2' pt 7 ps 0.8 dt 3 lw 2 title 'H100-80GB-HBM3 paper, naive', \
     'memory-bf16.dat' index 33 using 1:2 with linespoints lc rgb '#009E73' pt 9 ps 0.8 dt 1 lw 2 title 'H200 acceptance', \
     'memory-bf16.dat' index 34 using 1:2 with linespoints lc rgb '#D55E00' pt 5 ps 0.8 dt 1 lw 2 title 'H200 paper', \
     'memory-bf16.dat' index 35 using 1:2 with linespoints lc rgb '#0072B2' pt 7 ps 0.8 dt 1 lw 2 title 'H100-80GB-HBM3 paper'

set lmargin at screen 0.0931
set rmargin at screen 0.5028
set tmargin at screen 0.2627
set bmargin at screen 0.1001
set title 'bwd full d=128' offset 0,-0.5
set xlabel 'sequence length n'
set ylabel 'workspace, MB'
plot 'memory-bf16.dat' index 36 using 1:2 with linespoints lc rgb '#009E73' pt 9 ps 0.8 dt 3 lw 2 title 'H200 acceptance, naive', \
     'memory-bf16.dat' index 37 using 1:2 with linespoints lc rgb '#D55E00' pt 5 ps 0.8 dt 3 lw 2 title 'H200 paper, naive', \
     'memory-bf16.dat' index 38 using 1:2 with linespoints lc rgb '#0072B2' pt 7 ps 0.8 dt 3 lw 2 title 'H100-80GB-HBM3 paper, naive', \
     'memory-bf16.dat' index 39 using 1:2 with linespoints lc rgb '#009E73' pt 9 ps 0.8 dt 1 lw 2 title 'H200 acceptance', \
     'memory-bf16.dat' index 40 using 1:2 with linespoints lc rgb '#D55E00' pt 5 ps 0.8 dt 1 lw 2 title 'H200 paper', \
     'memory-bf16.dat' index 41 using 1:2 with linespoints lc rgb '#0072B2' pt 7 ps 0.8 dt 1 lw 2 title 'H100-80GB-HBM3 paper'

set lmargin at screen 0.5698
set rmargin at screen 0.9795
set tmargin at screen 0.2627
set bmargin at screen 0.1001
set title 'bwd causal d=128' offset 0,-0.5
set xlabel 'sequence length n'
set ylabel ''
plot 'memory-bf16.dat' index 42 using 1:2 with linespoints lc rgb '#009E73' pt 9 ps 0.8 dt 3 lw 2 title 'H200 acceptance, naive', \
     'memory-bf16.dat' index 43 using 1:2 with linespoints lc rgb '#D55E00' pt 5 ps 0.8 dt 3 lw 2 title 'H200 paper, naive', \
     'memory-bf16.dat' index 44 using 1:2 with linespoints lc rgb '#0072B2' pt 7 ps 0.8 dt 3 lw 2 title 'H100-80GB-HBM3 paper, naive', \
     'memory-bf16.dat' index 45 using 1:2 with linespoints lc rgb '#009E73' pt 9 ps 0.8 dt 1 lw 2 title 'H200 acceptance', \
     'memory-bf16.dat' index 46 using 1:2 with linespoints lc rgb '#D55E00' pt 5 ps 0.8 dt 1 lw 2 title 'H200 paper', \
     'memory-bf16.dat' index 47 using 1:2 with linespoints lc rgb '#0072B2' pt 7 ps 0.8 dt 1 lw 2 title 'H100-80GB-HBM3 paper'

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
set label 1 'Workspace beside inputs and outputs, bf16' at screen 0.0931,0.9818 left font ',19'
set label 2 'H100-80GB-HBM3 paper: NVIDIA H100 80GB HBM3, driver 580.159.04, commit c4e10af3bc79' at screen 0.0931,0.9649 left font ',12' tc rgb '#555555'
set label 3 'H200 paper: NVIDIA H200, driver 580.159.04, commit 07b67df17fd1' at screen 0.0931,0.9519 left font ',12' tc rgb '#555555'
set label 4 'H200 acceptance: NVIDIA H200, driver 580.159.04, commit 9fb46a1b48bd' at screen 0.0931,0.9389 left font ',12' tc rgb '#555555'
set label 5 'bf16, 16384 tokens (batch = tokens / n), heads x d = 2048, bshd, L2 cold, inputs N(0,1)' at screen 0.0931,0.9259 left font ',12' tc rgb '#555555'
set label 6 '1 MB = 1e6 bytes. Naive keeps S and P, O(N^2) per head; fused kernels keep O(N), which is flat where batch x n is fixed.' at screen 0.0931,0.9129 left font ',12' tc rgb '#555555'
set key at screen 0.5,0.0039 center bottom horizontal Left reverse samplen 3 width 0 font ',13'
plot NaN with linespoints lc rgb '#0072B2' pt 7 ps 0.8 dt 1 lw 2 title 'H100-80GB-HBM3 paper', \
     NaN with linespoints lc rgb '#D55E00' pt 5 ps 0.8 dt 1 lw 2 title 'H200 paper', \
     NaN with linespoints lc rgb '#009E73' pt 9 ps 0.8 dt 1 lw 2 title 'H200 acceptance', \
     NaN with linespoints lc rgb '#0072B2' pt 7 ps 0.8 dt 3 lw 2 title 'H100-80GB-HBM3 paper, naive', \
     NaN with linespoints lc rgb '#D55E00' pt 5 ps 0.8 dt 3 lw 2 title 'H200 paper, naive', \
     NaN with linespoints lc rgb '#009E73' pt 9 ps 0.8 dt 3 lw 2 title 'H200 acceptance, naive'
unset multiplot
unset output
