package simcloud

import "time"

// Semantics are unusual behaviors of real clouds that a driver must handle: the cloud does not report what has really
// happened. All are off by default and can be combined. A change of the semantics applies to later writes and reads.
// Lost answers, throttling, and calls that take effect after an error affect single calls. Therefore, they are fault
// rules.
type Semantics struct {
	// GetLag is the time until GetInstance shows a write. ListLag is the time until ListInstances and ListAddresses show a
	// write. If Settings.ReadLag is longer, it applies. Default: 0s.
	GetLag  Duration `json:"getLag"`
	ListLag Duration `json:"listLag"`
	// TagLag is the time until GetInstance and ListInstances show a change of tags. Default: 0s.
	TagLag Duration `json:"tagLag"`
	// ListOmits makes every n-th page of ListInstances omit its first instance, where n is the value of ListOmits.
	// Default: 0, none.
	ListOmits int `json:"listOmits"`
	// ListRepeats returns each page of ListInstances in reverse order, with one of its instances twice. Default: false.
	ListRepeats bool `json:"listRepeats"`
	// StateReturns is the time after a change of an instance's state during which reads are wrong: every other read by
	// GetInstance or ListInstances returns the previous state. Default: 0s.
	StateReturns Duration `json:"stateReturns"`
	// OtherCase spells ID, ProviderID, Region and Zone in capital letters in every other answer. Default: false.
	OtherCase bool `json:"otherCase"`
	// KeepAddresses keeps the address of a terminated instance until DeleteAddress. Default: false.
	KeepAddresses bool `json:"keepAddresses"`
	// AddressHold is the time after the termination of an instance during which its kept address cannot be deleted. Until
	// then, DeleteAddress returns CodeConflict. Default: 0s.
	AddressHold Duration `json:"addressHold"`
	// FiltersIgnored makes ListInstances and ListAddresses ignore the tags and the name in the options. Default: false.
	FiltersIgnored bool `json:"filtersIgnored"`
	// QuotaLag is the time for which a terminated instance still counts against the quota and the capacity. Default: 0s.
	QuotaLag Duration `json:"quotaLag"`
	// AnswerPadding is the number of bytes of white space before each answer to a customer. Default: 0.
	AnswerPadding int `json:"answerPadding"`
	// ClockOffset is added to all times in answers to customers. It can be negative. Default: 0s.
	ClockOffset Duration `json:"clockOffset"`
}

// SemanticsPatch changes the semantics whose fields are not nil.
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

// Address is the address of an instance. If Semantics.KeepAddresses was set when the instance was terminated, the
// address stays until it is deleted.
type Address struct {
	// ID is "a-" and the part of the instance's ID after "i-".
	ID         string `json:"id"`
	IP         string `json:"ip"`
	InstanceID string `json:"instanceID"`
	Region     string `json:"region"`
	Zone       string `json:"zone"`
	// InUse is true if the instance is not terminated.
	InUse bool `json:"inUse"`
	// Tags are the tags of the instance.
	Tags       map[string]string `json:"tags,omitempty"`
	LaunchTime time.Time         `json:"launchTime"`
}

// AddressList is one page, in the order of creation.
type AddressList struct {
	Addresses []Address `json:"addresses"`
	// NextToken is empty on the last page.
	NextToken string `json:"nextToken,omitempty"`
}
