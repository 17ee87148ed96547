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

// answer returns a message of the given size. The length field of the message contains claimedLength.
func answer(claimedLength uint32, bytes int) []byte {
	out := make([]byte, bytes)
	binary.BigEndian.PutUint32(out, claimedLength)
	return out
}

func TestImpossibleLengthsEndConnection(t *testing.T) {
	for name, c := range map[string]struct {
		data  []byte
		valid bool
	}{
		"two answers":             {append(answer(28, 28), answer(1000, 1000)...), true},
		"the maximum length":      {answer(maxFrame, 64), true},
		"one byte too long":       {answer(maxFrame+1, 64), false},
		"hundreds of megabytes":   {answer(256<<20, 64), false},
		"shorter than the header": {answer(27, 64), false},
		"length zero":             {answer(0, 64), false},
		"invalid second answer":   {append(answer(28, 28), answer(3, 28)...), false},
	} {
		for readMode, reader := range map[string]func(io.Reader) io.Reader{
			"in one read": func(r io.Reader) io.Reader { return r }, "byte by byte": iotest.OneByteReader,
		} {
			t.Run(name+" "+readMode, func(t *testing.T) {
				here, there := net.Pipe()
				defer here.Close()
				go func() {
					_, _ = there.Write(c.data)
					_ = there.Close()
				}()
				var broken atomic.Bool
				f := &checkedConn{Conn: here, isBroken: &broken}
				_, err := io.ReadAll(reader(f))
				if c.valid && err != nil || !c.valid && !errors.Is(err, errFrame) || broken.Load() == c.valid {
					t.Errorf("got %v, broken %t, want valid %t", err, broken.Load(), c.valid)
				}
			})
		}
	}
}
