package simcloud

import "time"

// Semantics are ways of real clouds that a driver has to live with: what is reported differs from what was done. All
// are off by default, go together, and hold for what is written and asked from the moment they are set. Answers lost,
// throttling and actions done after their error are fault rules instead: they befall single calls.
type Semantics struct {
	// GetLag is how far GetInstance is behind the writes, ListLag how far ListInstances and ListAddresses are. Where
	// Settings.ReadLag is more, that counts. Default: 0s.
	GetLag  Duration `json:"getLag"`
	ListLag Duration `json:"listLag"`
	// TagLag is how far the tags in what GetInstance and ListInstances tell are behind the writes. Default: 0s.
	TagLag Duration `json:"tagLag"`
	// ListOmits leaves the first instance out of every so many-th page of ListInstances. Default: 0, none.
	ListOmits int `json:"listOmits"`
	// ListRepeats lets each page of ListInstances come in reverse order, with one of its instances twice. Default: false.
	ListRepeats bool `json:"listRepeats"`
	// StateReturns is for how long after an instance changed its state every other check it, by GetInstance or
	// ListInstances, finds the state before. Default: 0s.
	StateReturns Duration `json:"stateReturns"`
	// OtherCase spells ID, ProviderID, Region and Zone with capital letters in every other answer. Default: false.
	OtherCase bool `json:"otherCase"`
	// KeepAddresses leaves the address of a terminated instance to its owner, until DeleteAddress. Default: false.
	KeepAddresses bool `json:"keepAddresses"`
	// AddressHold is for how long after its instance was terminated a kept address cannot be deleted: DeleteAddress
	// answers CodeConflict. Default: 0s.
	AddressHold Duration `json:"addressHold"`
	// FiltersIgnored lets ListInstances and ListAddresses return what has other tags and names than were asked for.
	// Default: false.
	FiltersIgnored bool `json:"filtersIgnored"`
	// QuotaLag is how long a terminated instance still counts against quota and capacity. Default: 0s.
	QuotaLag Duration `json:"quotaLag"`
	// AnswerPadding is how many bytes of white space come before each answer to a customer. Default: 0.
	AnswerPadding int `json:"answerPadding"`
	// ClockOffset is how far the times that customers are reported are ahead of the clock, or behind it where negative.
	// Default: 0s.
	ClockOffset Duration `json:"clockOffset"`
}

// SemanticsPatch changes the semantics that it names.
type SemanticsPatch struct {
	GetLag         *Duration `json:"getLag,omitempty"`
	ListLag        *Duration `json:"listLag,omitempty"`
	TagLag         *Duration `json:"tagLag,omitempty"`
	ListOmits      *int      `json:"listOmits,omitempty"`
	ListRepeats    *bool     `json:"listRepeats,omitempty"`
	StateReturns   *Duration `json:"stateReturns,omitempty"`
	OtherCase      *bool     `json:"otherCase,omitempty"`
	KeepAddresses  *bool     `json:"keepAddresses,omitempty"`
	AddressHold    *Duration `json:"addressHold,omitempty"`
	FiltersIgnored *bool     `json:"filtersIgnored,omitempty"`
	QuotaLag       *Duration `json:"quotaLag,omitempty"`
	AnswerPadding  *int      `json:"answerPadding,omitempty"`
	ClockOffset    *Duration `json:"clockOffset,omitempty"`
}

// Address is what an instance is reached by. It belongs to its instance, and where Semantics.KeepAddresses was set when
// that was terminated, it stays until it is deleted.
type Address struct {
	// ID is "a-" and what follows "i-" in the instance's ID.
	ID         string `json:"id"`
	IP         string `json:"ip"`
	InstanceID string `json:"instanceID"`
	Region     string `json:"region"`
	Zone       string `json:"zone"`
	// InUse is true while the instance is not terminated.
	InUse bool `json:"inUse"`
	// Tags are those of the instance.
	Tags       map[string]string `json:"tags,omitempty"`
	LaunchTime time.Time         `json:"launchTime"`
}

// AddressList is one page, in order of creation.
type AddressList struct {
	Addresses []Address `json:"addresses"`
	// NextToken is empty on the last page.
	NextToken string `json:"nextToken,omitempty"`
}
