package driver

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/digitalocean/go-libvirt"

	"machinist.dev/machinist/pkg/provider"
)

const someID = "libvirt:///9d3cbd0e-9f4c-5d5e-8a7b-0123456789ab"

// serve takes connections until the test ends. handle has one to itself.
func serve(t *testing.T, handle func(net.Conn)) (address string, dialled *atomic.Int64) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dialled = &atomic.Int64{}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			dialled.Add(1)
			t.Cleanup(func() { _ = conn.Close() })
			go handle(conn)
		}
	}()
	return listener.Addr().String(), dialled
}

func xdrString(text string) []byte {
	out := append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)
	return append(out, make([]byte, (4-len(text)%4)%4)...)
}

// answerCalls is a scripted libvirtd's side of a connection.
func answerCalls(capabilities string) func(net.Conn) { return answering(capabilities, nil) }

// answering is the same with answers to more procedures.
func answering(capabilities string, more map[uint32][]byte) func(net.Conn) {
	return func(conn net.Conn) {
		header := make([]byte, minFrame)
		for {
			if _, err := io.ReadFull(conn, header); err != nil {
				return
			}
			if _, err := io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint32(header)-minFrame)); err != nil {
				return
			}
			const authList, open, capabilitiesCall = 66, 1, 7
			status, payload := uint32(0), []byte(nil)
			procedure := binary.BigEndian.Uint32(header[12:])
			switch answer, known := more[procedure]; procedure {
			case authList:
				payload = []byte{0, 0, 0, 1, 0, 0, 0, 0}
			case open:
			case capabilitiesCall:
				payload = xdrString(capabilities)
			default:
				if payload = answer; known {
					break
				}
				status = 1
				payload = binary.BigEndian.AppendUint32(nil, uint32(libvirt.ErrNoDomain))
				payload = append(payload, 0, 0, 0, 0, 0, 0, 0, 1)
				payload = append(payload, xdrString("Domain not found")...)
				payload = append(payload, make([]byte, 8*4)...)
			}
			reply := append(append([]byte{}, header...), payload...)
			binary.BigEndian.PutUint32(reply, uint32(len(reply)))
			binary.BigEndian.PutUint32(reply[16:], 1)
			binary.BigEndian.PutUint32(reply[24:], status)
			if _, err := conn.Write(reply); err != nil {
				return
			}
		}
	}
}

func plainDriver(t *testing.T) *Driver {
	t.Helper()
	d, err := New(Options{PlainTCP: true})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func getFrom(ctx context.Context, d *Driver, address, scope string) error {
	uri := []byte("qemu+tcp://" + address + "/system")
	class := provider.Class{Credentials: provider.NewCredentials(map[string][]byte{"uri": uri})}
	_, err := d.Get(ctx, provider.GetRequest{Class: class, ProviderID: someID, Scope: scope})
	return err
}

const capabilitiesXML = "<capabilities><host><uuid>host-1</uuid></host></capabilities>"

func TestConnectionsAreUsedAgain(t *testing.T) {
	address, dialled := serve(t, answerCalls(capabilitiesXML))
	d := plainDriver(t)
	for range 3 {
		if err := getFrom(t.Context(), d, address, "host=host-1"); !provider.IsNotFound(err) {
			t.Fatal(err)
		}
	}
	if n := dialled.Load(); n != 1 {
		t.Errorf("three calls made %d connections", n)
	}
}

// Nothing can be said of a domain by a hypervisor that it was never on.
//
// Rule: libvirt-other-hypervisor-refused.
func TestAnotherHypervisorKnowsNothing(t *testing.T) {
	address, _ := serve(t, answerCalls(capabilitiesXML))
	err := getFrom(t.Context(), plainDriver(t), address, "host=host-2")
	if provider.CodeOf(err) != provider.FailedPrecondition || !strings.Contains(err.Error(), `"host-2"`) {
		t.Errorf("Get: %v", err)
	}
}

func TestAHypervisorThatDoesNotServe(t *testing.T) {
	silent := func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }
	for name, c := range map[string]struct {
		handle func(net.Conn)
		want   provider.Code
	}{
		"hangs up":         {func(conn net.Conn) { _ = conn.Close() }, provider.Unavailable},
		"does not answer":  {silent, provider.DeadlineExceeded},
		"has no end":       {func(conn net.Conn) { _, _ = conn.Write([]byte{0xff, 0xff, 0xff, 0xff}) }, provider.Internal},
		"has no beginning": {func(conn net.Conn) { _, _ = conn.Write(make([]byte, 64)) }, provider.Internal},
		"is no XML":        {answerCalls("<capabilities"), provider.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			address, _ := serve(t, c.handle)
			patience := time.Minute
			if c.want == provider.DeadlineExceeded {
				patience = 100 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := getFrom(ctx, plainDriver(t), address, ""); provider.CodeOf(err) != c.want {
				t.Errorf("Get: %v, want %s", err, c.want)
			}
		})
	}
	t.Run("is not there", func(t *testing.T) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if err := listener.Close(); err != nil {
			t.Fatal(err)
		}
		if err := getFrom(t.Context(), plainDriver(t), listener.Addr().String(), ""); provider.CodeOf(err) != provider.Unavailable {
			t.Errorf("Get: %v", err)
		}
	})
	t.Run("is given up", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		address, _ := serve(t, func(conn net.Conn) {
			cancel(errors.New("enough"))
			silent(conn)
		})
		if err := getFrom(ctx, plainDriver(t), address, ""); provider.CodeOf(err) != provider.Canceled {
			t.Errorf("Get: %v", err)
		}
	})
}
