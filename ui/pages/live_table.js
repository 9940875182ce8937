// A table of Quasar with cells of our own. As one component it keeps its cells when their values change: links in them
// keep the focus. Slots that are given to NiceGUI as text would be made anew with each change of the page.

const none = (value) => value === null || value === undefined;
const two = (part) => String(part).padStart(2, "0");
const as_number = (value, decimals) => Number(value).toLocaleString("en-US", { maximumFractionDigits: decimals });
const as_secs = (value) => {
  const secs = Math.round(value), days = Math.floor(secs / 86400), hours = Math.floor((secs % 86400) / 3600);
  const mins = Math.floor((secs % 3600) / 60);
  return days ? `${days} d ${hours} h` : hours ? `${hours} h ${mins} min` : mins ? `${mins} min ${secs % 60} s` : `${secs} s`;
};
const as_moment = (value) => {
  const at = new Date(value * 1000), month = at.toLocaleString("en-US", { month: "short" });
  return `${two(at.getDate())} ${month} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
};
// Kind of a column -> its value as text.
const NUMBERS = {
  n: (value) => as_number(value, 0), n1: (value) => as_number(value, 1), n2: (value) => as_number(value, 2),
  n3: (value) => as_number(value, 3), b: (value) => `${as_number(value / 1048576, value < 1e8 ? 1 : 0)} MiB`,
  p: (value) => `${(100 * value).toFixed(value < 0.1 ? 1 : 0)} %`, t: as_secs, at: as_moment,
};

export default {
  template: `
    <div style="width:100%">
      <q-input v-if="filtered && rows.length > 8" v-model="filter" class="sq-filter" placeholder="filter"
        dense outlined clearable debounce="200" aria-label="Filter rows" />
      <q-table v-if="rows.length" class="sq-table" flat dense :columns="described" :rows="rows" :row-key="rowKey"
        :filter="filter" v-model:pagination="pagination" :hide-bottom="!(0 < rowsPerPage && rowsPerPage < rows.length)">
        <template #header-cell="cell">
          <q-th :props="cell" tabindex="0" @keydown.enter="cell.sort(cell.col)">{{ cell.col.label }}</q-th>
        </template>
        <template #body-cell="cell">
          <q-td :props="cell">
            <a v-if="cell.col.kind === 'link' && cell.row.href" :href="cell.row.href">{{ cell.value }}</a>
            <a v-else-if="cell.col.kind === 'pick'" href="#"
              @click.prevent="$emit('pick', cell.row[rowKey])">{{ cell.value }}</a>
            <span v-else-if="cell.col.kind === 'chip'" class="sq-chip"
              :style="{background: cell.row.colour}">{{ cell.value }}</span>
            <q-btn v-else-if="cell.col.kind === 'replay'" dense outline no-caps size="sm" label="Replay"
              :disable="!!cell.row.why_no_payload" :title="cell.row.why_no_payload"
              :aria-label="'Replay message ' + cell.row.message_id" @click="$emit('pick', cell.row[rowKey])" />
            <template v-else>{{ cell.value }}</template>
          </q-td>
        </template>
      </q-table>
      <div v-else class="sq-soft">{{ empty }}</div>
    </div>`,
  props: {
    columns: Array, rows: Array, rowKey: String, empty: String, rowsPerPage: Number, filtered: Boolean,
    sortBy: String, descending: Boolean,
  },
  emits: ["pick"],
  data() {
    return {
      filter: "",
      pagination: { rowsPerPage: this.rowsPerPage, sortBy: this.sortBy, descending: this.descending, page: 1 },
    };
  },
  computed: {
    described() {
      return this.columns.map(([name, label, kind]) => ({
        name, label, kind, field: name, sortable: true, align: NUMBERS[kind] ? "right" : "left",
        classes: kind === "wrap" ? "wrap" : "",
        format: (value) => (NUMBERS[kind] ? (none(value) ? "–" : NUMBERS[kind](value)) : value),
      }));
    },
  },
};
