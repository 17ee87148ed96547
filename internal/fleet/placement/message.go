package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/wording"
)

// listedDomains limits the domains whose distribution a message describes. listedClasses limits the classes or domains
// that every other sentence lists.
const (
	listedDomains = 10
	listedClasses = 3
)

// Balanced returns the status, the reason and the message of the condition Balanced.
func (r Report) Balanced() (balanced bool, reason, message string) {
	var sentences []string
	switch {
	case r.Unplaced > 0 && r.Blocked == NoOption:
		reason = v1beta1.ReasonClassNotFound
		sentences = append(sentences, r.unplaced()+
			": no class of a domain below maxReplicas can be used. Create or correct the classes, or change spec.placement.")
	case r.Unplaced > 0:
		reason = v1beta1.ReasonBoundsReached
		sentences = append(sentences, r.unplaced()+
			": each domain with a weight above 0 has maxReplicas machines. Raise maxReplicas or lower spec.replicas.")
	case r.Waiting > 0:
		reason = v1beta1.ReasonInsufficientResources
		sentences = append(sentences, wording.Count(r.Waiting, "machine")+verb(r.Waiting, "waits", "wait")+
			" for capacity.")
	case r.exceeded && r.noCapacity:
		reason = v1beta1.ReasonInsufficientResources
	case r.exceeded && r.noClass:
		reason = v1beta1.ReasonClassNotFound
	case r.exceeded:
		reason = v1beta1.ReasonSkewExceeded
	default:
		balanced, reason = true, v1beta1.ReasonWithinMaxSkew
	}
	sentences = append(sentences, r.distribution()+".")
	sentences = append(sentences, r.unavailable()...)
	if reason == v1beta1.ReasonSkewExceeded {
		sentences = append(sentences, r.remedy())
	}
	if len(r.Silent) > 0 {
		sentences = append(sentences, "Most Nodes in "+list(r.Silent)+" are not Ready.")
	}
	if len(r.Unavailable)+len(r.Silent) > 0 && r.Blocked == "" {
		sentences = append(sentences, r.next())
	}
	return balanced, reason, strings.Join(sentences, " ")
}

// verb returns the verb for a number of things.
func verb(n int, singular, plural string) string {
	if n == 1 {
		return " " + singular
	}
	return " " + plural
}

// unplaced describes how many machines are missing.
func (r Report) unplaced() string {
	return fmt.Sprintf("%d of %s%s no place", r.Unplaced, wording.Count(r.replicas, "machine"),
		verb(r.Unplaced, "has", "have"))
}

// distribution describes how many machines each domain has and should have. If there are many domains, it describes
// those with the largest differences.
func (r Report) distribution() string {
	listed := slices.Clone(r.Domains)
	rest := len(listed) - listedDomains
	if rest > 0 {
		slices.SortStableFunc(listed, func(a, b DomainReport) int { return cmp.Compare(b.skew(), a.skew()) })
		listed = listed[:listedDomains]
	}
	var parts []string
	for i, d := range listed {
		name, noun := d.Name, ""
		if name == "" {
			name = "no domain"
		}
		if i == 0 {
			noun = " " + strings.TrimLeft(wording.Count(d.Machines, "machine"), "0123456789 ")
		}
		parts = append(parts, fmt.Sprintf("%s has %d%s (share %s)", name, d.Machines, noun, number(d.Share)))
	}
	if rest > 0 {
		parts = append(parts, "and "+wording.Count(rest, "other domain")+" with smaller differences")
	}
	relation := "is within"
	if r.exceeded {
		relation = "exceeds"
	}
	s := fmt.Sprintf("The distribution %s maxSkew %d: %s", relation, r.maxSkew, strings.Join(parts, ", "))
	switch created := r.Changing - r.Unplaced; {
	case created > 0:
		s += fmt.Sprintf("; %s will be created", wording.Count(created, "more machine"))
	case r.Changing < 0:
		s += fmt.Sprintf("; %s will be deleted", wording.Count(-r.Changing, "machine"))
	}
	return s
}

// skew returns the difference between the number of machines and the share, without sign.
func (d DomainReport) skew() float64 {
	return max(float64(d.Machines)-d.Share, d.Share-float64(d.Machines))
}

// unavailable describes the options without capacity, and then the options whose classes are rejected or missing.
func (r Report) unavailable() (sentences []string) {
	var exhausted, rejected, missing []string
	for _, o := range r.Unavailable {
		switch {
		case o.Rejected != "":
			rejected = append(rejected, fmt.Sprintf("%s in %s (%s)", o.ClassName, o.Domain, o.Rejected))
			continue
		case o.Missing:
			missing = append(missing, o.ClassName+" in "+o.Domain)
			continue
		}
		since := ""
		if !o.Since.IsZero() {
			since = " since " + timestamp(o.Since)
		}
		retry := "next try now"
		if r.now.Before(o.RetryTime) {
			retry = "next try at " + timestamp(o.RetryTime)
		}
		exhausted = append(exhausted, fmt.Sprintf("%s in %s%s (%s)", o.ClassName, o.Domain, since, retry))
	}
	if len(exhausted) > 0 {
		sentences = append(sentences, "The cloud has no capacity for "+classes(exhausted)+".")
	}
	if len(rejected) > 0 {
		sentences = append(sentences, "No instance can be created from "+classes(rejected)+".")
	}
	if len(missing) > 0 {
		subject := classes(missing)
		sentences = append(sentences, strings.ToUpper(subject[:1])+subject[1:]+verb(len(missing), "does not exist or is",
			"do not exist or are")+" being deleted.")
	}
	return sentences
}

// classes lists classes after the noun.
func classes(all []string) string {
	if len(all) > 1 {
		return "the classes " + list(all)
	}
	return "class " + list(all)
}

func list(all []string) string {
	if rest := len(all) - listedClasses; rest > 0 {
		all = append(all[:listedClasses:listedClasses], fmt.Sprintf("and %d more", rest))
	}
	return strings.Join(all, ", ")
}

// remedy describes what restores the distribution although all domains have capacity.
func (r Report) remedy() string {
	if r.rebalances {
		return "While all machines are available and no rollout is in progress, surplus machines are replaced one at a time."
	}
	return "New machines and scale-downs restore the distribution. To restore it without a change of spec.replicas, set spec.placement.rebalance to WhenIdle."
}

// next describes where the next machine is created.
func (r Report) next() string {
	if r.NextWaits {
		return fmt.Sprintf("New machines wait for class %s in %s.", r.Next.ClassName, r.Next.Domain)
	}
	return fmt.Sprintf("The next machine gets class %s in %s.", r.Next.ClassName, r.Next.Domain)
}

func timestamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// number formats a share with at most two decimals.
func number(f float64) string {
	s := strconv.FormatFloat(f, 'f', 2, 64)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}
