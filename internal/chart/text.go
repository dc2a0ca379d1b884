package chart

import (
	"strings"
	"sync"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
)

// The Go fonts are part of the program: PNGs look the same everywhere, and need
// no fonts of the machine. An SVG is shown in the reader's own font; room is left for the
// widest of those that are common, DejaVu Sans, which is Debian's.

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

// widest is how much wider DejaVu Sans is than the Go font, at most: its letters
// are 14 % wider, its bold ones 17 %.
const widest = 1.17

// textWidth is how wide a text is at most, in pixels.
func textWidth(s string, size float64, bold bool) float64 {
	face, err := newFace(size, bold)
	if err != nil {
		return 0.7 * size * float64(len([]rune(s)))
	}
	defer face.Close()
	return widest * float64(font.MeasureString(face, s)) / 64
}

// wrap breaks a text between words into lines that are at most width wide; one word
// that is wider has a line of its own.
func wrap(s string, width, size float64, bold bool) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(s) {
		longer := strings.TrimSpace(line + " " + word)
		if line != "" && textWidth(longer, size, bold) > width {
			lines, longer = append(lines, line), word
		}
		line = longer
	}
	return append(lines, line)
}
