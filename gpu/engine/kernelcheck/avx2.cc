#include "../cpu_avx2.cc"
