package fakeaws

import (
	"crypto/md5" // SQS sends MD5 checksums.
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"time"
)

// message is a message of an SQS queue.
type message struct {
	id, body, receipt string
	// visible is the time from which the message can be received.
	visible time.Time
}

// Send puts a message into a queue. The path is the path of the queue's URL.
func (a *AWS) Send(path, body string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.queues[path] = append(a.queues[path], &message{id: a.id("msg"), body: body, visible: a.now()})
}

// Queued returns the number of messages in a queue.
func (a *AWS) Queued(path string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.queues[path])
}

// queuePath returns the path of the queue in the call.
func (c *call) queuePath() (string, *failure) {
	text, _ := c.body["QueueUrl"].(string)
	u, err := url.Parse(text)
	if err != nil {
		return "", badRequest("InvalidAddress", "The address is not valid.")
	}
	if _, exists := c.aws.queues[u.Path]; !exists {
		return "", badRequest("QueueDoesNotExist", "The specified queue does not exist.")
	}
	return u.Path, nil
}

func (c *call) integer(name string, otherwise int) int {
	if n, ok := c.body[name].(float64); ok {
		return int(n)
	}
	return otherwise
}

// receiveMessage returns up to 10 visible messages, and hides them.
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ReceiveMessage.html
func (c *call) receiveMessage() (answer, *failure) {
	path, f := c.queuePath()
	if f != nil {
		return answer{}, f
	}
	most, hidden := c.integer("MaxNumberOfMessages", 1), c.integer("VisibilityTimeout", 30)
	if most < 1 || most > 10 {
		return answer{}, badRequest("InvalidParameterValue", "MaxNumberOfMessages must be between 1 and 10.")
	}
	all := []map[string]string{}
	now := c.aws.now()
	for _, m := range c.aws.queues[path] {
		if len(all) == most || m.visible.After(now) {
			continue
		}
		m.receipt, m.visible = c.aws.id("receipt"), now.Add(time.Duration(hidden)*time.Second)
		sum := md5.Sum([]byte(m.body))
		all = append(all, map[string]string{"MessageId": m.id, "ReceiptHandle": m.receipt, "Body": m.body,
			"MD5OfBody": hex.EncodeToString(sum[:])})
	}
	return jsonAnswer(map[string]any{"Messages": all})
}

// deleteMessageBatch deletes received messages.
func (c *call) deleteMessageBatch() (answer, *failure) {
	path, f := c.queuePath()
	if f != nil {
		return answer{}, f
	}
	entries, _ := c.body["Entries"].([]any)
	if len(entries) < 1 || len(entries) > 10 {
		return answer{}, badRequest("TooManyEntriesInBatchRequest", "A batch has 1 to 10 entries.")
	}
	done := []map[string]string{}
	for _, entry := range entries {
		fields, _ := entry.(map[string]any)
		receipt, _ := fields["ReceiptHandle"].(string)
		id, _ := fields["Id"].(string)
		c.aws.queues[path] = slices.DeleteFunc(c.aws.queues[path], func(m *message) bool {
			return receipt != "" && m.receipt == receipt
		})
		done = append(done, map[string]string{"Id": id})
	}
	return jsonAnswer(map[string]any{"Successful": done, "Failed": []any{}})
}

func jsonAnswer(body any) (answer, *failure) {
	raw, err := json.Marshal(body)
	if err != nil {
		return answer{}, fail(http.StatusInternalServerError, "InternalError", "encode the answer")
	}
	return answer{status: http.StatusOK, body: raw, json: true}, nil
}
