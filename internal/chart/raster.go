package chart

import (
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"math"

	"golang.org/x/image/font"
	"golang.org/x/image/math/fixed"
	"golang.org/x/image/vector"
)

// A raster is a canvas of pixels. It is light; its white background makes it
// readable on a dark page.
type raster struct {
	m     *image.RGBA
	scale float64
	faces map[faceKey]font.Face
}

type faceKey struct {
	size float64
	bold bool
}

// Colours of everything but the series, as in the light scheme of the SVG.
var (
	inkColor   = color.RGBA{0x1b, 0x1f, 0x24, 0xff}
	faintColor = color.RGBA{0x57, 0x60, 0x6a, 0xff}
	gridColor  = color.RGBA{0xe3, 0xe6, 0xea, 0xff}
	axisColor  = color.RGBA{0x8c, 0x95, 0x9f, 0xff}
)

func newRaster(width, height, scale float64) (*raster, error) {
	m := image.NewRGBA(image.Rect(0, 0, int(math.Ceil(width*scale)), int(math.Ceil(height*scale))))
	draw.Draw(m, m.Bounds(), image.White, image.Point{}, draw.Src)
	_, err := fonts()
	return &raster{m, scale, map[faceKey]font.Face{}}, err
}

func seriesColor(i int) color.RGBA {
	c := palette[i%MaxSeries]
	return color.RGBA{byte(c >> 16), byte(c >> 8), byte(c), 0xff}
}

// fill fills polygons, each given by its corners.
func (r *raster) fill(c color.RGBA, polygons ...[]xy) {
	// Only the part that they cover is worked on.
	lo, hi := xy{math.Inf(1), math.Inf(1)}, xy{math.Inf(-1), math.Inf(-1)}
	for _, poly := range polygons {
		for _, p := range poly {
			lo = xy{min(lo.x, p.x), min(lo.y, p.y)}
			hi = xy{max(hi.x, p.x), max(hi.y, p.y)}
		}
	}
	part := image.Rect(int(math.Floor(lo.x*r.scale)), int(math.Floor(lo.y*r.scale)), int(math.Ceil(hi.x*r.scale)), int(math.Ceil(hi.y*r.scale))).Intersect(r.m.Bounds())
	if part.Empty() {
		return
	}
	v := vector.NewRasterizer(part.Dx(), part.Dy())
	at := func(p xy) (x, y float32) {
		return float32(p.x*r.scale) - float32(part.Min.X), float32(p.y*r.scale) - float32(part.Min.Y)
	}
	for _, poly := range polygons {
		v.MoveTo(at(poly[0]))
		for _, p := range poly[1:] {
			v.LineTo(at(p))
		}
		v.ClosePath()
	}
	v.Draw(r.m, part, image.NewUniform(c), image.Point{})
}

// line draws each piece by itself, and a disc at each corner. They all turn the
// same way round, so that where they overlap nothing is taken out again.
func (r *raster) line(points []xy, width float64, c int) {
	var polygons [][]xy
	half := width / 2
	for i, p := range points {
		if i > 0 {
			q := points[i-1]
			dx, dy := p.x-q.x, p.y-q.y
			if n := math.Hypot(dx, dy); n > 0 {
				nx, ny := -dy/n*half, dx/n*half
				polygons = append(polygons, []xy{{q.x - nx, q.y - ny}, {p.x - nx, p.y - ny}, {p.x + nx, p.y + ny}, {q.x + nx, q.y + ny}})
			}
		}
		disc := make([]xy, 12)
		for j := range disc {
			sin, cos := math.Sincos(2 * math.Pi * float64(j) / 12)
			disc[j] = xy{p.x + half*cos, p.y + half*sin}
		}
		polygons = append(polygons, disc)
	}
	r.fill(seriesColor(c), polygons...)
}

func (r *raster) rule(a, b xy, strong bool) {
	c := gridColor
	if strong {
		c = axisColor
	}
	// Whole pixels, so that thin lines are sharp.
	snap := func(v float64) int { return int(math.Round(v * r.scale)) }
	thick := max(int(math.Round(r.scale)), 1)
	rect := image.Rect(snap(a.x), snap(a.y), snap(b.x), snap(b.y))
	rect.Max = rect.Max.Add(image.Pt(thick, thick))
	if rect.Dx() > rect.Dy() {
		rect.Max.X -= thick
	} else {
		rect.Max.Y -= thick
	}
	draw.Draw(r.m, rect, image.NewUniform(c), image.Point{}, draw.Src)
}

func (r *raster) rect(a, b xy, c int) {
	r.fill(seriesColor(c), []xy{a, {b.x, a.y}, b, {a.x, b.y}})
}

func (r *raster) face(size float64, bold bool) font.Face {
	key := faceKey{size, bold}
	f, ok := r.faces[key]
	if !ok {
		var err error
		if f, err = newFace(size*r.scale, bold); err != nil {
			return nil // newRaster has seen that the fonts can be used
		}
		r.faces[key] = f
	}
	return f
}

func (r *raster) text(at xy, text string, style textStyle) {
	face := r.face(style.size, style.bold)
	if text == "" || face == nil {
		return
	}
	text = clean(text)
	ink := image.NewUniform(inkColor)
	if style.faint {
		ink = image.NewUniform(faintColor)
	}
	width := float64(font.MeasureString(face, text)) / 64
	x, y := at.x*r.scale, at.y*r.scale
	shift := map[align]float64{left: 0, middle: width / 2, right: width}[style.align]
	if !style.up {
		d := font.Drawer{Dst: r.m, Src: ink, Face: face, Dot: fixed.Point26_6{X: fixed.Int26_6((x - shift) * 64), Y: fixed.Int26_6(y * 64)}}
		d.DrawString(text)
		return
	}
	// Written as a mask, which is then turned by a quarter.
	up, down := int(math.Ceil(style.size*r.scale)), int(math.Ceil(style.size*r.scale*0.3))
	mask := image.NewAlpha(image.Rect(0, 0, int(math.Ceil(width))+1, up+down))
	d := font.Drawer{Dst: mask, Src: image.Opaque, Face: face, Dot: fixed.P(0, up)}
	d.DrawString(text)
	turned := image.NewAlpha(image.Rect(0, 0, mask.Rect.Dy(), mask.Rect.Dx()))
	for i := range mask.Rect.Dx() {
		for j := range mask.Rect.Dy() {
			turned.SetAlpha(j, mask.Rect.Dx()-1-i, mask.AlphaAt(i, j))
		}
	}
	corner := image.Pt(int(x)-up, int(y+shift)-mask.Rect.Dx())
	draw.DrawMask(r.m, turned.Rect.Add(corner), ink, image.Point{}, turned, image.Point{}, draw.Over)
}

func (r *raster) encode(w io.Writer) error {
	enc := png.Encoder{CompressionLevel: png.BestCompression}
	return enc.Encode(w, r.m)
}
