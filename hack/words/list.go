package main

import "regexp"

// word is one that the project does not use.
type word struct {
	// names matches the words of an identifier, in lower case and with spaces between them; text matches prose.
	names, text *regexp.Regexp
	// fine matches what has the word in its ordinary meaning: an identifier, or what is around the word in a text.
	fine *regexp.Regexp
	// instead is what to say.
	instead string
}

// both returns a word that is used neither in names nor in texts.
func both(pattern, instead string) word {
	return word{
		names:   regexp.MustCompile(`\b(` + pattern + `)\b`),
		text:    regexp.MustCompile(`(?i)\b(` + pattern + `)\b`),
		instead: instead,
	}
}

func inNames(pattern, instead string) word {
	return word{names: regexp.MustCompile(`\b(` + pattern + `)\b`), instead: instead}
}

func inTexts(pattern, instead string) word {
	return word{text: regexp.MustCompile(`(?i)\b(` + pattern + `)\b`), instead: instead}
}

func (w word) unless(fine string) word {
	w.fine = regexp.MustCompile(fine)
	return w
}

// testNames are sentences: what is an ordinary verb there is a private word as the name of a variable.
const testNames = `^(test|fuzz|benchmark) `

// words are the private ones that the project had, and clauses that make a sentence hard to read.
var words = []word{
	inNames(`rooms?`, `the controller, package or capacity that is meant`).unless(`head ?room|leave room`),
	inNames(`doors?|gates?`, `admission, or what is closed`).unless(`feature gates?`),
	both(`at rest`, `"settled" or "idle"`).unless(`encrypt|secrets? at rest`),
	both(`at work`, `"leading" or "running"`),
	inNames(`away`, `"unreachable", "removed" or "absent"`).unless(`names away out`),
	inTexts(`(is|are|was|were|be|been|counts? as) away`, `"unreachable", "removed" or "absent"`),
	inNames(`told|tells?|says?|news`, `reported, report, message, change or event`).unless(testNames),
	inTexts(`told|says so|say so|the news|no news|tells? (it|us|them|him|whether|nobody|that)`,
		`"reported", "sets condition X", "shows"`).unless(`told apart`),
	inNames(`looks?|glances|sights?|sightings?`, // Glance is OpenStack's service of images
		`check, observation, probe or reconcile`).unless(`looks? like|looks? up`),
	inTexts(`glances|(a|one|first|each) glance|sights?|sightings?|a look|(one|two|first|last|next|live|second|closer|each) looks?|looked at|looks? at|looking at`, `"check", "observation", "reconcile"`),
	both(`reigns?|reigned`, `leadership term`),
	both(`recollections?`, `state`),
	both(`remembrance|recalls?`, `state, or restore`),
	both(`dress|dressed|dresses|dressing|undressed`, `apply the node template`),
	both(`doubts?|doubted|mistrusts?|mistrusted`, `"stale", "uncertain", "unconfirmed"`),
	inNames(`proven|floors?`, `confirmed, minResourceVersion`).unless(`^floor$`),
	inTexts(`floors?`, `"minimum resource version", "lower limit"`),
	both(`bells?`, `trigger`),
	inNames(`rings?|rang|wakes?|woken|woke|waking`, `trigger, notify, enqueue`),
	inTexts(`wakes?|woken|woke|waking|wakes? up|wake-ups?`, `"triggers", "enqueues", "notifies"`),
	inNames(`places?`, `slot, position`).unless(`in places?|placeholder`),
	inTexts(`consequences?`, `"retry policy", "result"`),
	inNames(`consequences?`, `retryPolicy`),
	both(`foreign`, `"unsupported schema", "another installation's", "others'"`).unless(`foreign key`),
	inNames(`nobodys|everybodys|whom`, `unassigned, untagged, or the thing that is meant`).unless(testNames),
	inTexts(`nobody's|everybody's|somebody else's`, `"unassigned", "untagged", "another's"`),
	both(`unheld`, `"not protected by a finalizer"`),
	inNames(`held|holds`, `protected, inUse, blocked`).unless(`held lease|lease held|` + testNames),
	both(`forks?|forked|forking`, `clone, in tests only`),
	both(`foresees?|foreseen|foresight|foresaw`, `preview`),
	inNames(`aside`, `preserved`),
	inTexts(`set aside|sets aside|setting aside|kept aside|sets? (it|them|a machine|the machine) aside`, `preserved`),
	inNames(`kept|markings?`, `preserved, retained, stored`).unless(testNames),
	both(`verdicts?`, `"validation result", "outcome", "decision"`),
	both(`refusals?`, `"validation error", "rejection", "denial"`),
	both(`deeds?`, `action, step`),
	both(`kindred|elders?|rivals?|strays?|courtesy|crumbs?`, `the fact`),
	inTexts(`belt to the braces|belt and braces`, `the fact`),
	inTexts(`shall`, `"must", or the plain verb`),
	inTexts(`(is|are|was|were) to be`, `"must be", "will be", or the desired state`),
	inTexts(`of whom|by whom|for whom|with whom|whom`, `two sentences, or "that"`),
	inTexts(`none is|none are`, `"there is no ..."`),
	inTexts(`as long nothing is`, `"while"`),
	inTexts(`hither|thereof|wherefore|lest`, `"so that ... not", "because"`),
	inTexts(`all the same`, `"anyway", "still"`),
}
