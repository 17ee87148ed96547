package faulty

import (
	"encoding/binary"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

// Rule is one way to misbehave. What it leaves out happens as always.
type Rule struct {
	// Skip is how many of the calls that the rule is about are let through first.
	Skip int
	// Only are the procedures that the rule is about. Nil: all.
	Only func(procedure uint32) bool
	// Cut ends the connection instead of passing the call on.
	Cut bool
	// Lose passes the call on and ends the connection instead of passing its answer.
	Lose bool
	// Hang neither passes the call on nor answers it.
	Hang bool
	// Refuse answers the call. With Late it is passed on nevertheless, so much later.
	Refuse *Denial
	Late   time.Duration
	// AfterEnd limits the rule to calls so long after the end of a domain.
	AfterEnd time.Duration
	// Pad makes answers so many bytes longer.
	Pad int
}

// Faults are the rules that hold now, for all connections that Wrap was called for. The zero value has none.
type Faults struct {
	// DropUploads is for a hypervisor that takes no uploads, as the one that libvirt simulates: they are answered as done,
	// and their content goes nowhere.
	DropUploads bool

	mu    sync.Mutex
	rules []*Rule
	ended time.Time // when a domain was ended last
	late  sync.WaitGroup
}

// Inject adds a rule until end is called.
func (f *Faults) Inject(r Rule) (end func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = append(f.rules, &r)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.rules = slices.DeleteFunc(f.rules, func(other *Rule) bool { return other == &r })
	}
}

// Wait returns when all late calls have been answered.
func (f *Faults) Wait() { f.late.Wait() }

// ruleFor returns the first rule that is about a call, if there is one.
func (f *Faults) ruleFor(procedure uint32) *Rule {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.rules {
		if r.Only != nil && !r.Only(procedure) || r.AfterEnd > 0 && time.Since(f.ended) > r.AfterEnd {
			continue
		}
		if r.Skip > 0 {
			r.Skip--
			continue
		}
		return r
	}
	return nil
}

// saw takes note of an answer of libvirtd's.
func (f *Faults) saw(answer frame) {
	// What does not run any more is not ended again.
	if answer.procedure() != DomainDestroyFlags || answer.status() != statusOK {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = time.Now()
}

// Wrap puts the faults around a connection to libvirtd.
func (f *Faults) Wrap(server net.Conn) net.Conn {
	toDriver, answers := io.Pipe()
	c := &conn{Conn: server, faults: f, answers: answers, toDriver: toDriver, silent: map[uint32]bool{},
		lost: map[uint32]bool{}, padded: map[uint32]int{}, dropped: map[uint32]bool{}}
	go c.receive()
	return c
}

// conn is a connection with faults.
type conn struct {
	net.Conn
	faults   *Faults
	toDriver *io.PipeReader
	answers  *io.PipeWriter

	sending sync.Mutex
	unsent  frame // the beginning of a message that the driver has not sent whole

	mu sync.Mutex
	// By the serial of a call: its answer is not for the driver; is lost; is so many bytes longer; or it is an upload that
	// libvirtd does not get.
	silent, lost, dropped map[uint32]bool
	padded                map[uint32]int
	pending               int // calls that are passed on late: the connection stays open for them
	closed                bool
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) { return c.toDriver.Read(p) }

// Close implements net.Conn.
func (c *conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	_ = c.answers.CloseWithError(net.ErrClosed)
	_ = c.toDriver.CloseWithError(net.ErrClosed)
	if c.pending > 0 {
		return nil
	}
	return c.Conn.Close()
}

// Write implements net.Conn: it takes the driver's messages apart.
func (c *conn) Write(p []byte) (int, error) {
	c.sending.Lock()
	defer c.sending.Unlock()
	c.unsent = append(c.unsent, p...)
	for len(c.unsent) >= lengthBytes {
		size := int(binary.BigEndian.Uint32(c.unsent))
		if len(c.unsent) < size {
			break
		}
		f := append(frame{}, c.unsent[:size]...)
		c.unsent = c.unsent[size:]
		if err := c.send(f); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// send passes a message on, or does what a rule says.
func (c *conn) send(f frame) error {
	if f.kind() != typeCall {
		c.mu.Lock()
		silent, dropped := c.silent[f.serial()], c.dropped[f.serial()]
		c.mu.Unlock()
		switch {
		case dropped && f.status() == statusOK:
			c.answer(f.done(typeStream))
			return nil
		case silent, dropped:
			return nil
		}
		return c.pass(f)
	}
	r := c.faults.ruleFor(f.procedure())
	if r == nil {
		return c.call(f)
	}
	if r.Cut {
		_ = c.Close()
		return net.ErrClosed
	}
	c.mu.Lock()
	if r.Lose {
		c.lost[f.serial()] = true
	}
	if r.Pad > 0 {
		c.padded[f.serial()] = r.Pad
	}
	if r.Hang || r.Refuse != nil {
		c.silent[f.serial()] = true
	}
	c.mu.Unlock()
	switch {
	case r.Hang:
		return nil
	case r.Refuse == nil:
		return c.call(f)
	}
	if r.Late > 0 {
		c.passLate(f, r.Late)
	}
	// The library reads in another goroutine.
	_, err := c.answers.Write(r.Refuse.to(f))
	return err
}

// call passes a call on, or answers an upload itself.
func (c *conn) call(f frame) error {
	if f.procedure() != StorageVolUpload || !c.faults.DropUploads {
		return c.pass(f)
	}
	c.mu.Lock()
	c.dropped[f.serial()] = true
	c.mu.Unlock()
	c.answer(f.done(typeReply))
	return nil
}

func (c *conn) pass(f frame) error {
	_, err := c.Conn.Write(f)
	return err
}

// passLate passes a call on later, also when the driver has closed the connection by then.
func (c *conn) passLate(f frame, after time.Duration) {
	c.mu.Lock()
	c.pending++
	c.mu.Unlock()
	c.faults.late.Add(1)
	time.AfterFunc(after, func() {
		c.sending.Lock()
		err := c.pass(f)
		c.sending.Unlock()
		if err != nil {
			c.done()
		}
	})
}

// done is for a late call that has been answered, or cannot be.
func (c *conn) done() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending == 0 {
		return
	}
	c.pending--
	c.faults.late.Done()
	if c.closed && c.pending == 0 {
		_ = c.Conn.Close()
	}
}

// receive passes libvirtd's messages on to the driver.
func (c *conn) receive() {
	for {
		f, err := readFrame(c.Conn)
		if err != nil {
			_ = c.answers.CloseWithError(err)
			for range c.waiting() {
				c.done()
			}
			return
		}
		c.faults.saw(f)
		c.answer(f)
	}
}

// answer gives an answer to the driver, as far as the rules let it.
func (c *conn) answer(f frame) {
	c.mu.Lock()
	silent, lost, pad := c.silent[f.serial()], c.lost[f.serial()], c.padded[f.serial()]
	c.mu.Unlock()
	switch {
	case silent:
		c.done()
	case lost:
		_ = c.Close()
	case pad > 0:
		c.long(f, pad)
	default:
		// A driver that has gone is no reason to stop: late calls have answers too.
		_, _ = c.answers.Write(f)
	}
}

func (c *conn) waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pending
}

// long passes an answer on that is longer than it has to be.
func (c *conn) long(f frame, pad int) {
	binary.BigEndian.PutUint32(f, uint32(len(f)+pad))
	if _, err := c.answers.Write(f); err != nil {
		return
	}
	zeros := make([]byte, 1<<20)
	for ; pad > 0; pad -= len(zeros) {
		if _, err := c.answers.Write(zeros[:min(pad, len(zeros))]); err != nil {
			return
		}
	}
}
