#include "../cpu_avx512.cc"
