package chart

import (
	"sync"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
)

// The Go fonts are part of the program: PNGs look the same everywhere, and need
// no fonts of the machine. An SVG is shown in the reader's own font, of which the
// widths are near enough.

var fonts = sync.OnceValues(func() (list [2]*opentype.Font, err error) {
	for i, ttf := range [][]byte{goregular.TTF, gobold.TTF} {
		if list[i], err = opentype.Parse(ttf); err != nil {
			return list, err
		}
	}
	return list, nil
})

// newFace is a font at a size in pixels.
func newFace(size float64, bold bool) (font.Face, error) {
	list, err := fonts()
	if err != nil {
		return nil, err
	}
	f := list[0]
	if bold {
		f = list[1]
	}
	return opentype.NewFace(f, &opentype.FaceOptions{Size: size, DPI: 72, Hinting: font.HintingNone})
}

// textWidth is about how wide a text is, in pixels.
func textWidth(s string, size float64, bold bool) float64 {
	face, err := newFace(size, bold)
	if err != nil {
		return 0.6 * size * float64(len([]rune(s)))
	}
	defer face.Close()
	return float64(font.MeasureString(face, s)) / 64
}
