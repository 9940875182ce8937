// A multilang bolt of the tests in JavaScript, asynchronous as those of Storm's storm.js are: node shell_program.js
const fs = require('fs');

let rest = '', greeted = false;
const send = (message) => process.stdout.write(JSON.stringify(message) + '\nend\n');

process.stdin.on('data', (data) => {
  const frames = (rest + data).split('\nend\n');
  rest = frames.pop();
  for (const frame of frames) {
    const message = JSON.parse(frame);
    if (!greeted) {
      greeted = true;
      fs.closeSync(fs.openSync(message.pidDir + '/' + process.pid, 'w'));
      send({pid: process.pid});
    } else if (Array.isArray(message)) {
      send({command: 'log', msg: 'went to ' + message});
    } else if (message.stream === '__heartbeat') {
      send({command: 'sync'});
    } else {
      setTimeout(() => {
        send({command: 'emit', tuple: message.tuple, anchors: [message.id]});
        send({command: 'ack', id: message.id});
      }, Math.random() * 5);
    }
  }
});
