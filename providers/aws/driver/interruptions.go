package driver

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/httpapi"
	"machinist.dev/machinist/providers/aws/machine"
)

// spotNotice is the time between an interruption notice and the interruption.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html
const spotNotice = 2 * time.Minute

// noticeLife is how long the driver remembers a notice after the interruption.
const noticeLife = 5 * time.Minute

// rebalanceNotice is when an instance with a rebalance recommendation is expected to be interrupted.
const rebalanceNotice = 10 * time.Minute

// hiddenSeconds is how long a received message stays invisible for other consumers. After a crash, the next process
// receives the message again.
const hiddenSeconds = 60

// maxReceives limits the calls that read a queue at once.
const maxReceives = 20

// maxNotices limits the notices that are remembered for one queue.
const maxNotices = 10000

// notices remembers the notices of queues until the interruption is over. A queue hides a message after it was
// received, so a driver without memory would withdraw the notice.
type notices struct {
	mu     sync.Mutex
	queues map[string]map[string]notice // by queue and message ID
}

type notice struct {
	instance string
	at       time.Time
	reason   provider.InterruptionReason
	receipt  string
}

// Interruptions implements provider.Interrupter. It returns the scheduled events of DescribeInstanceStatus, and the
// notices in the queue of the region.
func (d *Driver) Interruptions(ctx context.Context, req provider.InterruptionsRequest) ([]provider.Interruption,
	error) {
	spec, err := machine.ParseSpec(req.Class.Spec)
	if err != nil {
		return nil, err
	}
	c, err := d.clients(req.Class.Credentials, spec.Region)
	if err != nil {
		return nil, err
	}
	all, err := c.scheduled(ctx)
	if err != nil {
		return nil, err
	}
	queue := d.options.InterruptionQueues[spec.Region]
	if queue == "" {
		return all, nil
	}
	if err := d.receive(ctx, c, queue); err != nil {
		return nil, err
	}
	more, err := d.remembered(ctx, c, queue)
	return append(all, more...), err
}

// scheduled returns the scheduled events that interrupt an instance.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/monitoring-instances-status-check_sched.html
func (c *clients) scheduled(ctx context.Context) (all []provider.Interruption, err error) {
	in := &ec2.DescribeInstanceStatusInput{IncludeAllInstances: aws.Bool(true), MaxResults: aws.Int32(1000),
		Filters: []types.Filter{filter("event.code", "instance-retirement", "instance-stop", "system-reboot",
			"instance-reboot", "system-maintenance")}}
	pages := httpapi.List(ctx)
	for {
		out, err := send(pages, c, "list the scheduled events of instances", c.ec2.DescribeInstanceStatus, in)
		if err != nil {
			return nil, err
		}
		for _, status := range out.InstanceStatuses {
			for _, event := range status.Events {
				// EC2 marks the description of events that are over.
				text := aws.ToString(event.Description)
				if strings.HasPrefix(text, "[Completed]") || strings.HasPrefix(text, "[Canceled]") {
					continue
				}
				all = append(all, provider.Interruption{ProviderID: "aws:///" + aws.ToString(status.AvailabilityZone) + "/" +
					aws.ToString(status.InstanceId), ReclaimTime: aws.ToTime(event.NotBefore), Reason: provider.Termination})
				break
			}
		}
		if aws.ToString(out.NextToken) == "" {
			return all, nil
		}
		in.NextToken = out.NextToken
	}
}

// event is an event of EventBridge.
// https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-events-structure.html
type event struct {
	Source     string    `json:"source"`
	DetailType string    `json:"detail-type"`
	Time       time.Time `json:"time"`
	Region     string    `json:"region"`
	Detail     struct {
		InstanceID string `json:"instance-id"`
		State      string `json:"state"`
	} `json:"detail"`
}

var instanceIDFormat = regexp.MustCompile(`^i-[0-9a-f]{8,17}$`)

// noticeOf returns the notice in a message, or false if the message announces no interruption.
func (o Options) noticeOf(body, region string) (notice, bool) {
	var e event
	if json.Unmarshal([]byte(body), &e) != nil || e.Source != "aws.ec2" || e.Region != region ||
		!instanceIDFormat.MatchString(e.Detail.InstanceID) {
		return notice{}, false
	}
	n := notice{instance: e.Detail.InstanceID, reason: provider.Preemption, at: e.Time.Add(spotNotice)}
	switch e.DetailType {
	case "EC2 Spot Instance Interruption Warning":
		return n, true
	case "EC2 Instance Rebalance Recommendation":
		n.at = e.Time.Add(rebalanceNotice)
		return n, o.RebalanceInterrupts
	case "EC2 Instance State-change Notification":
		n.at, n.reason = e.Time, provider.Termination
		return n, e.Detail.State == "shutting-down" || e.Detail.State == "terminated"
	}
	return notice{}, false
}

// receive reads all visible messages of a queue. Messages that announce no interruption are deleted at once.
func (d *Driver) receive(ctx context.Context, c *clients, queue string) error {
	for range maxReceives {
		out, err := send(ctx, c, "receive interruption notices", c.sqs.ReceiveMessage, &sqs.ReceiveMessageInput{
			QueueUrl: aws.String(queue), MaxNumberOfMessages: 10, VisibilityTimeout: hiddenSeconds})
		if err != nil {
			return createError(err)
		}
		if len(out.Messages) == 0 {
			return nil
		}
		var useless []string
		d.notices.mu.Lock()
		if d.notices.queues == nil {
			d.notices.queues = map[string]map[string]notice{}
		}
		known := d.notices.queues[queue]
		if known == nil {
			known = map[string]notice{}
			d.notices.queues[queue] = known
		}
		for _, m := range out.Messages {
			n, announces := d.options.noticeOf(aws.ToString(m.Body), c.region)
			n.receipt = aws.ToString(m.ReceiptHandle)
			if !announces || len(known) >= maxNotices {
				useless = append(useless, n.receipt)
				continue
			}
			known[aws.ToString(m.MessageId)] = n
		}
		d.notices.mu.Unlock()
		if err := c.discard(ctx, queue, useless); err != nil {
			return err
		}
	}
	return nil
}

// remembered returns the remembered notices, and discards those that are over.
func (d *Driver) remembered(ctx context.Context, c *clients, queue string) (all []provider.Interruption, err error) {
	now := time.Now()
	var over []string
	latest := map[string]notice{}
	d.notices.mu.Lock()
	maps.DeleteFunc(d.notices.queues[queue], func(_ string, n notice) bool {
		if now.Sub(n.at) > noticeLife {
			over = append(over, n.receipt)
			return true
		}
		if other, has := latest[n.instance]; !has || n.at.Before(other.at) {
			latest[n.instance] = n
		}
		return false
	})
	d.notices.mu.Unlock()
	if err := c.discard(ctx, queue, over); err != nil {
		return nil, err
	}
	if len(latest) == 0 {
		return nil, nil
	}
	// A notice does not contain the zone, which the provider ID needs.
	ids := slices.Sorted(maps.Keys(latest))
	for chunk := range slices.Chunk(ids, 100) {
		out, err := send(ctx, c, "find interrupted instances", c.ec2.DescribeInstances,
			&ec2.DescribeInstancesInput{Filters: []types.Filter{filter("instance-id", chunk...)}})
		if err != nil {
			return nil, err
		}
		for _, reservation := range out.Reservations {
			for i := range reservation.Instances {
				in := &reservation.Instances[i]
				n, known := latest[aws.ToString(in.InstanceId)]
				if known && !isTerminated(in) {
					all = append(all, provider.Interruption{ProviderID: c.convert(in).ProviderID, ReclaimTime: n.at,
						Reason: n.reason})
				}
			}
		}
	}
	return all, nil
}

// discard deletes messages from a queue.
func (c *clients) discard(ctx context.Context, queue string, receipts []string) error {
	for chunk := range slices.Chunk(receipts, 10) {
		var entries []sqstypes.DeleteMessageBatchRequestEntry
		for i, receipt := range chunk {
			entries = append(entries, sqstypes.DeleteMessageBatchRequestEntry{Id: aws.String(fmt.Sprint(i)),
				ReceiptHandle: aws.String(receipt)})
		}
		if _, err := send(ctx, c, "delete interruption notices", c.sqs.DeleteMessageBatch,
			&sqs.DeleteMessageBatchInput{QueueUrl: aws.String(queue), Entries: entries}); err != nil {
			return createError(err)
		}
	}
	return nil
}
