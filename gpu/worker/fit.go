package worker

import "time"

// Sample is one prompt that was computed alone.
type Sample struct {
	Tokens uint32
	Took   time.Duration
}

// Fit is the time to compute m prompt tokens alone, a*m + b*m^2 microseconds.
type Fit struct {
	A, B     float64
	Measured uint32 // the longest prompt of the samples; 0: there is no fit
}

// fit is the least squares fit without a negative term: attention alone cannot pay time back. There is none without a sample
// of at least one token and some time.
func fit(samples []Sample) Fit {
	var m2, m3, m4, tm, tm2 float64 // sums of m^2, m^3, m^4, t*m, t*m^2
	var f Fit
	for _, s := range samples {
		if s.Tokens == 0 || s.Took <= 0 {
			continue
		}
		m, t := float64(s.Tokens), float64(s.Took)/float64(time.Microsecond)
		m2, m3, m4, tm, tm2 = m2+m*m, m3+m*m*m, m4+m*m*m*m, tm+t*m, tm2+t*m*m
		f.Measured = max(f.Measured, s.Tokens)
	}
	if f.Measured == 0 {
		return f
	}
	if det := m2*m4 - m3*m3; det > 1e-9*m2*m4 {
		f.A, f.B = (tm*m4-tm2*m3)/det, (m2*tm2-m3*tm)/det
	} else {
		f.A = tm / m2
	}
	switch {
	case f.B < 0:
		f.A, f.B = tm/m2, 0
	case f.A < 0:
		f.A, f.B = 0, tm2/m4
	}
	return f
}
