package chart

import (
	"math"
	"strconv"
)

// ticks of an axis between two values, at most about n.
func (a Axis) ticks(lo, hi float64, n int) []Tick {
	if a.Ticks != nil {
		var inside []Tick
		for _, t := range a.Ticks {
			if a.usable(t.At) && t.At >= lo && t.At <= hi {
				inside = append(inside, t)
			}
		}
		return inside
	}
	if a.Log {
		return logTicks(lo, hi, n)
	}
	return linearTicks(lo, hi, n)
}

// linearTicks are multiples of 1, 2 or 5 times a power of ten.
func linearTicks(lo, hi float64, n int) (list []Tick) {
	raw := (hi - lo) / float64(max(n, 1))
	step := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, m := range []float64{1, 2, 5, 10} {
		if step*m >= raw*0.999 {
			step *= m
			break
		}
	}
	for i := math.Ceil(lo/step - 1e-9); i*step <= hi*(1+1e-9) && len(list) < 50; i++ {
		list = append(list, Tick{i * step, Number(i * step)})
	}
	return list
}

// logTicks are powers of ten, with 2 and 5 times them where there are few.
func logTicks(lo, hi float64, n int) (list []Tick) {
	first, last := math.Floor(math.Log10(lo)), math.Ceil(math.Log10(hi))
	every, steps := 1.0, []float64{1}
	switch decades := last - first; {
	case decades <= float64(n)/3:
		steps = []float64{1, 2, 5}
	case decades > float64(n):
		every = math.Ceil(decades / float64(n))
	}
	for p := first; p <= last; p += every {
		for _, m := range steps {
			if v := m * math.Pow(10, p); v >= lo*(1-1e-9) && v <= hi*(1+1e-9) {
				list = append(list, Tick{v, Number(v)})
			}
		}
	}
	return list
}

// Number writes a value in three figures with k, M or G.
func Number(v float64) string {
	abs := math.Abs(v)
	for _, u := range []struct {
		unit float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if abs >= u.unit*0.9995 && abs >= 9995 || abs >= u.unit*0.9995 && u.unit > 1e3 {
			return figures(v/u.unit) + u.name
		}
	}
	return figures(v)
}

// figures writes a number with three significant figures, and all of those before
// the point.
func figures(v float64) string {
	abs := math.Abs(v)
	switch {
	case abs < 1e-12:
		return "0"
	case abs >= 99.95:
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	digits := min(max(2-int(math.Floor(math.Log10(abs))), 0), 9)
	text := strconv.FormatFloat(v, 'f', digits, 64)
	if digits == 0 {
		return text
	}
	end := len(text)
	for text[end-1] == '0' {
		end--
	}
	if text[end-1] == '.' {
		end--
	}
	return text[:end]
}
