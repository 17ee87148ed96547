package cloud

import "net/netip"

// pool allocates numbers below size. A number can be allocated only once until it is released. The pool reuses a
// released number as late as possible.
type pool struct {
	size int
	next int
	used map[int]bool
}

func newPool(size int) *pool { return &pool{size: size, used: map[int]bool{}} }

// take allocates a number. If all numbers are in use, take returns false.
func (p *pool) take() (int, bool) {
	if len(p.used) >= p.size {
		return 0, false
	}
	for p.used[p.next] {
		p.next = (p.next + 1) % p.size
	}
	n := p.next
	p.reserve(n)
	return n, true
}

// reserve marks a number as allocated.
func (p *pool) reserve(n int) {
	p.used[n] = true
	p.next = (n + 1) % p.size
}

func (p *pool) release(n int) { delete(p.used, n) }

// maxInstances is the maximum number of live instances. Each of them needs its own network for pods.
const maxInstances = 1 << 14

// Each live instance has a slot: an address in 10.0.0.0/8 and a network for 254 pods in 100.64.0.0/10. No traffic
// reaches them.

// slotAddress skips addresses that end in 0 or 255, because these look like network or broadcast addresses.
func slotAddress(slot int) netip.Addr {
	low, high := slot%254+1, slot/254
	return netip.AddrFrom4([4]byte{10, 0, byte(high), byte(low)})
}

func slotPodNet(slot int) netip.Prefix {
	high := 64 + slot>>8
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{100, byte(high), byte(slot), 0}), 24)
}
