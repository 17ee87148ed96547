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
	"machinist.dev/machinist/pkg/provider/endpoints"
)

const someID = "libvirt:///9d3cbd0e-9f4c-5d5e-8a7b-0123456789ab"

func serve(t *testing.T, handle func(net.Conn)) (address string, connections *atomic.Int64) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	connections = &atomic.Int64{}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			connections.Add(1)
			t.Cleanup(func() { _ = conn.Close() })
			go handle(conn)
		}
	}()
	return listener.Addr().String(), connections
}

func xdrString(text string) []byte {
	out := append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)
	return append(out, make([]byte, (4-len(text)%4)%4)...)
}

// answerCalls acts as a libvirtd that answers each call with a fixed response.
func answerCalls(capabilities string) func(net.Conn) { return answerCallsWith(capabilities, nil) }

// answerCallsWith acts like answerCalls, and also answers the procedures for which extraAnswers contains an answer.
func answerCallsWith(capabilities string, extraAnswers map[uint32][]byte) func(net.Conn) {
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
			switch answer, known := extraAnswers[procedure]; procedure {
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

func newTestDriver(t *testing.T) *Driver {
	t.Helper()
	d, err := New(Options{PlainTCP: true, Endpoints: endpoints.Rules{}.AllowHosts("127.0.0.1")})
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

func TestConnectionsAreReused(t *testing.T) {
	address, connections := serve(t, answerCalls(capabilitiesXML))
	d := newTestDriver(t)
	for range 3 {
		if err := getFrom(t.Context(), d, address, "host=host-1"); !provider.IsNotFound(err) {
			t.Fatal(err)
		}
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("three calls opened %d connections, want 1", n)
	}
}

// A domain on another hypervisor must not be reported as gone.
//
// Rule: libvirt-other-hypervisor-refused.
func TestGetRefusesOtherHypervisor(t *testing.T) {
	address, _ := serve(t, answerCalls(capabilitiesXML))
	err := getFrom(t.Context(), newTestDriver(t), address, "host=host-2")
	if provider.CodeOf(err) != provider.FailedPrecondition || !strings.Contains(err.Error(), `"host-2"`) {
		t.Errorf("got %v, want FailedPrecondition with the UUIDs", err)
	}
}

func TestUnusableHypervisorHasCode(t *testing.T) {
	ignoreCalls := func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }
	for name, c := range map[string]struct {
		handle func(net.Conn)
		want   provider.Code
	}{
		"closes the connection": {func(conn net.Conn) { _ = conn.Close() }, provider.Unavailable},
		"does not answer":       {ignoreCalls, provider.DeadlineExceeded},
		"answer is too long":    {func(conn net.Conn) { _, _ = conn.Write([]byte{0xff, 0xff, 0xff, 0xff}) }, provider.Internal},
		"answer is too short":   {func(conn net.Conn) { _, _ = conn.Write(make([]byte, 64)) }, provider.Internal},
		"answer is not XML":     {answerCalls("<capabilities"), provider.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			address, _ := serve(t, c.handle)
			timeout := time.Minute
			if c.want == provider.DeadlineExceeded {
				timeout = 100 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			if err := getFrom(ctx, newTestDriver(t), address, ""); provider.CodeOf(err) != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
	t.Run("does not exist", func(t *testing.T) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if err := listener.Close(); err != nil {
			t.Fatal(err)
		}
		err = getFrom(t.Context(), newTestDriver(t), listener.Addr().String(), "")
		if provider.CodeOf(err) != provider.Unavailable {
			t.Errorf("got %v", err)
		}
	})
	t.Run("call is canceled", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		address, _ := serve(t, func(conn net.Conn) {
			cancel(errors.New("canceled by the test"))
			ignoreCalls(conn)
		})
		if err := getFrom(ctx, newTestDriver(t), address, ""); provider.CodeOf(err) != provider.Canceled {
			t.Errorf("got %v", err)
		}
	})
}

// A user who can write Secrets sets the URI of the hypervisor to an address on the provider's own host. The provider
// must not connect to this address.
//
// Rule: endpoints-by-flag.
func TestAttackSecretNamesHostOnLoopback(t *testing.T) {
	address, connections := serve(t, answerCalls(capabilitiesXML))
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		options Options
		host    string
		// connects is true if the driver must connect to the host.
		connects bool
	}{
		"loopback":                       {Options{}, "127.0.0.1", false},
		"IPv6 form":                      {Options{}, "[::ffff:127.0.0.1]", false},
		"name":                           {Options{}, "localhost", false},
		"metadata service":               {Options{}, "169.254.169.254", false},
		"name in the list of hosts":      {Options{Hosts: []string{"localhost"}}, "localhost", false},
		"address in the list of hosts":   {Options{Hosts: []string{"127.0.0.1"}}, "127.0.0.1", true},
		"range in the list of addresses": {Options{Endpoints: endpoints.Rules{}.AllowHosts("127.0.0.1")}, "127.0.0.1", true},
	} {
		c.options.PlainTCP = true
		d, err := New(c.options)
		if err != nil {
			t.Fatal(err)
		}
		before := connections.Load()
		err = getFrom(t.Context(), d, c.host+":"+port, "")
		connected := connections.Load() > before
		if connected != c.connects || connected != provider.IsNotFound(err) || !connected &&
			(provider.CodeOf(err) != provider.PermissionDenied || !strings.Contains(err.Error(), "--libvirt-allow-address")) {
			t.Errorf("%s: got %v, connected: %t, want connected: %t", name, err, connected, c.connects)
		}
	}
}
