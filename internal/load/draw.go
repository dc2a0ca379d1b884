package load

// Draw returns keys for n gets in the distribution of the options, the choices of
// one caller of a run: for a program that has to prepare its requests.
func (o Options) Draw(n int) ([][]byte, error) {
	o = o.withDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	choose, template := newChooser(o.Choice, o.Theta, o.Records, o.Seed, 0), o.Keys.template()
	keys := make([][]byte, n)
	room := make([]byte, 0, n*o.Keys.Size)
	for i := range keys {
		from := len(room)
		room = template.append(room, choose.next(o.Records))
		keys[i] = room[from:len(room):len(room)]
	}
	return keys, nil
}
