package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// speedPause is the time between two samples of the machine's speed, which take a hundredth of one core.
	speedPause = 250 * time.Millisecond
	// samplePieces is how many pieces of work a sample takes the time of.
	samplePieces = 100
)

// speedometer tells how fast the machine is while something is measured. On shared hardware that changes by half
// within minutes, unseen in the time that the processor is stolen: others use the same core. So a fixed piece of work
// is done again and again, and the processor time taken that it needs. It is so small that it stays in the core's own
// cache: that what is measured leaves it less of a larger one is not the machine's fault.
type speedometer struct {
	work pieceOfWork
	done chan struct{}
	mean chan float64
}

// newSpeedometer begins to measure.
func newSpeedometer() *speedometer {
	s := &speedometer{work: newPieceOfWork(), done: make(chan struct{}), mean: make(chan float64, 1)}
	go s.run()
	return s
}

// stop ends the measurement and returns how many pieces of work were done in a second of processor time, on average.
func (s *speedometer) stop() float64 {
	close(s.done)
	return <-s.mean
}

func (s *speedometer) run() {
	runtime.LockOSThread() // Whose processor time is taken.
	defer runtime.UnlockOSThread()
	var sum float64
	for n := 1.0; ; n++ {
		sum += s.sample()
		select {
		case <-s.done:
			s.mean <- sum / n
			return
		case <-time.After(speedPause):
		}
	}
}

// sample returns how many pieces of work fit into a second of processor time.
func (s *speedometer) sample() float64 {
	s.work.do() // What must be in the processor's caches is in them then.
	begun := threadTime()
	for range samplePieces {
		s.work.do()
	}
	return samplePieces / (threadTime() - begun).Seconds()
}

// threadTime is the processor time that this thread has used.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err) // It has no other cause than wrong arguments.
	}
	return time.Duration(t.Nano())
}

// pieceOfWork is a text of JSON to go through, which leaves no garbage.
type pieceOfWork []byte

func newPieceOfWork() pieceOfWork {
	var text bytes.Buffer
	text.WriteByte('[')
	for i := range 30 {
		fmt.Fprintf(&text,
			`{"name":"machine-%d","labels":{"a.example/b":"c"},"replicas":%d,"ready":true,"list":[1.5,null,"x"]},`, i*7919, i)
	}
	text.WriteString("{}]")
	return text.Bytes()
}

func (w pieceOfWork) do() {
	if !json.Valid(w) {
		panic("the text is not JSON")
	}
}
