package openstack

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// broker is a connection to RabbitMQ that counts the consumers of queues. The connection implements only this part of
// AMQP 0-9-1.
type broker struct {
	conn net.Conn
	in   *bufio.Reader
}

// method identifies a method of AMQP by its class and number.
type method struct{ class, id uint16 }

var (
	connectionStart   = method{10, 10}
	connectionStartOK = method{10, 11}
	connectionTune    = method{10, 30}
	connectionTuneOK  = method{10, 31}
	connectionOpen    = method{10, 40}
	connectionOpenOK  = method{10, 41}
	channelOpen       = method{20, 10}
	channelOpenOK     = method{20, 11}
	channelClose      = method{20, 40}
	queueDeclare      = method{50, 10}
	queueDeclareOK    = method{50, 11}
)

// errNoQueue reports a missing queue. RabbitMQ creates a queue when a service first consumes from it.
var errNoQueue = errors.New("the service does not consume from its queue yet")

func dialBroker(ctx context.Context, port int) (*broker, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	// A starting broker accepts connections but does not respond.
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		conn.Close()
		return nil, err
	}
	b := &broker{conn: conn, in: bufio.NewReader(conn)}
	if err := b.open(); err != nil {
		conn.Close()
		return nil, fmt.Errorf("connect to RabbitMQ: %w", err)
	}
	return b, nil
}

func (b *broker) close() { b.conn.Close() }

func (b *broker) open() error {
	if _, err := b.conn.Write([]byte("AMQP\x00\x00\x09\x01")); err != nil {
		return err
	}
	if _, err := b.expect(connectionStart); err != nil {
		return err
	}
	credentials := append(binary.BigEndian.AppendUint32(nil, 12), "\x00guest\x00guest"...)
	answer := append([]byte{0, 0, 0, 0}, shortString("PLAIN")...)
	answer = append(append(answer, credentials...), shortString("en_US")...)
	if err := b.send(0, connectionStartOK, answer); err != nil {
		return err
	}
	tune, err := b.expect(connectionTune)
	if err != nil {
		return err
	}
	if len(tune) < 8 {
		return io.ErrUnexpectedEOF
	}
	// Accept the proposed values, but turn off heartbeats.
	if err := b.send(0, connectionTuneOK, append(tune[:6:6], 0, 0)); err != nil {
		return err
	}
	if err := b.send(0, connectionOpen, append(shortString("/"), 0, 0)); err != nil {
		return err
	}
	_, err = b.expect(connectionOpenOK)
	return err
}

// consumers returns the number of consumers of a queue. Each call needs another channel, because an error closes the
// channel.
func (b *broker) consumers(channel uint16, queue string) (int, error) {
	if err := b.send(channel, channelOpen, []byte{0}); err != nil {
		return 0, err
	}
	if _, err := b.expect(channelOpenOK); err != nil {
		return 0, err
	}
	const passive = 1 // do not create it
	request := append(append([]byte{0, 0}, shortString(queue)...), passive, 0, 0, 0, 0)
	if err := b.send(channel, queueDeclare, request); err != nil {
		return 0, err
	}
	answer, err := b.expect(queueDeclareOK)
	if err != nil {
		return 0, err
	}
	if len(answer) < 9 {
		return 0, io.ErrUnexpectedEOF
	}
	return int(binary.BigEndian.Uint32(answer[len(answer)-4:])), nil
}

func shortString(s string) []byte { return append([]byte{byte(len(s))}, s...) }

// These bytes surround the payload of a frame.
const (
	methodFrame = 1
	frameEnd    = 0xCE
)

func (b *broker) send(channel uint16, m method, arguments []byte) error {
	frame := binary.BigEndian.AppendUint16([]byte{methodFrame}, channel)
	frame = binary.BigEndian.AppendUint32(frame, uint32(4+len(arguments)))
	frame = binary.BigEndian.AppendUint16(frame, m.class)
	frame = binary.BigEndian.AppendUint16(frame, m.id)
	frame = append(append(frame, arguments...), frameEnd)
	_, err := b.conn.Write(frame)
	return err
}

// expect reads the next method frame and returns its arguments. It returns an error if the frame contains another
// method than want.
func (b *broker) expect(want method) ([]byte, error) {
	header := make([]byte, 7)
	if _, err := io.ReadFull(b.in, header); err != nil {
		return nil, err
	}
	payload := make([]byte, binary.BigEndian.Uint32(header[3:])+1)
	if _, err := io.ReadFull(b.in, payload); err != nil {
		return nil, err
	}
	if header[0] != methodFrame || len(payload) < 5 {
		return nil, fmt.Errorf("got a frame of type %d, want a method", header[0])
	}
	got := method{binary.BigEndian.Uint16(payload), binary.BigEndian.Uint16(payload[2:])}
	switch {
	case got == want:
		return payload[4 : len(payload)-1], nil
	case got == channelClose:
		return nil, errNoQueue
	default:
		return nil, fmt.Errorf("got the method %v, want %v", got, want)
	}
}
