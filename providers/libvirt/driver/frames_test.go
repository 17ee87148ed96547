package driver

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/iotest"
)

// answer is a message of so many bytes that claims another length.
func answer(claimed uint32, bytes int) []byte {
	out := make([]byte, bytes)
	binary.BigEndian.PutUint32(out, claimed)
	return out
}

func TestLengthsThatCannotBeEndTheConnection(t *testing.T) {
	for name, c := range map[string]struct {
		data []byte
		good bool
	}{
		"two answers":              {append(answer(28, 28), answer(1000, 1000)...), true},
		"the longest":              {answer(maxFrame, 64), true},
		"too long":                 {answer(maxFrame+1, 64), false},
		"hundreds of megabytes":    {answer(256<<20, 64), false},
		"no room for its header":   {answer(27, 64), false},
		"nothing":                  {answer(0, 64), false},
		"an impossible second one": {append(answer(28, 28), answer(3, 28)...), false},
	} {
		for how, reader := range map[string]func(io.Reader) io.Reader{
			"whole": func(r io.Reader) io.Reader { return r }, "byte by byte": iotest.OneByteReader,
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				here, there := net.Pipe()
				defer here.Close()
				go func() {
					_, _ = there.Write(c.data)
					_ = there.Close()
				}()
				var broken atomic.Bool
				f := &frames{Conn: here, broken: &broken}
				_, err := io.ReadAll(reader(f))
				if c.good && err != nil || !c.good && !errors.Is(err, errFrame) || broken.Load() == c.good {
					t.Errorf("reading ends with %v, broken %t", err, broken.Load())
				}
			})
		}
	}
}
